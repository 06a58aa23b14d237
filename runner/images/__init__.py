"""Everything that turns images/versions.yaml into images: locks, Dockerfiles, wheels, bases, builds, archives."""
