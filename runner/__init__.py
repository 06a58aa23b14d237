"""dlscale's runner: `argv → Request → Resources → Trials → ContainerSpecs → Outcome → Measurement → RunRecord → file → report`."""

__version__ = "0.1.0"
