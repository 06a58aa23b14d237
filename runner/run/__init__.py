"""Runs a request: prepares images and data, runs and monitors each trial's containers, and writes a record of each run."""
