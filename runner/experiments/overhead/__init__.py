"""What the suite itself costs, against the same training without it, in alternating rounds."""
