"""Everything that a machine with a GPU can tell, by one command: scripts/gpu_check.sh."""
