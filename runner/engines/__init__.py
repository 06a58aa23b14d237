"""Engines: the only rooms from which processes and containers are started."""
