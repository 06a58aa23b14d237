"""Experiments that run several benchmarks and judge them together: studies, ablation, overhead, node diagnosis."""
