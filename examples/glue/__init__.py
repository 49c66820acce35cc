"""Fine-tuning on GLUE: see README.md."""
