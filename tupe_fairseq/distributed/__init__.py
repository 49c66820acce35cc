"""Training by several processes, on one machine or several: scripts/train_distributed.sh."""
