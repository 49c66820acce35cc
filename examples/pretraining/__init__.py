"""Text and configurations for pre-training: see README.md."""
