"""Pure: events and samples of runs → figures, validity, transport, telemetry, profiles and comparisons. Reads no file."""
