"""Runs a request: prepares images and data, runs each trial's containers with monitors beside them, and leaves a record of each."""
