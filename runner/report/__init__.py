"""What the user reads: tables, plots and live progress. Formats frozen values; computes none of them."""
