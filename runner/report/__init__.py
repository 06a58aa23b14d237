"""What the user reads: tables, plots and live progress. Formats frozen values; computes none of them."""

import logging

# matplotlib warns where HOME is read-only, although all it wants to keep there is a cache of fonts.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
