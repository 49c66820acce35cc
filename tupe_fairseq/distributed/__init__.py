"""Training with several processes, on one or several machines: scripts/train_distributed.sh."""

#: Environment variable with the id of the process that started a worker.
LAUNCHER = "TUPE_FAIRSEQ_LAUNCHER"
