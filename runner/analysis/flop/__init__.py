"""Model FLOP utilisation: the arithmetic of a run over the dense peak of its devices (`peaks.yaml`), or why there is no such figure."""
