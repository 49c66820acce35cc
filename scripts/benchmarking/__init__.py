"""What `benchmark_training.py` and `benchmark_attention.py` share."""
