"""Everything that turns images/versions.yaml into images: locks, Dockerfiles, wheels, the base, builds, archives."""
