"""dlscale's runner: `argv → Request → Trials → ContainerSpecs → Outcome → Measurement → RunRecord → report`."""

__version__ = "0.1.0"
