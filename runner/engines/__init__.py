"""Engines: the only room that starts processes and containers."""
