"""Model FLOP utilisation: a run's arithmetic over the dense peak of its devices (`peaks.yaml`), or why it is unavailable."""
