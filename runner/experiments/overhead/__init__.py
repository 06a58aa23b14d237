"""The cost of the suite itself, against the same training without it, in alternating rounds."""
