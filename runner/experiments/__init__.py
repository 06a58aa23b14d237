"""What runs several benches and judges them together: studies, ablation, overhead."""
