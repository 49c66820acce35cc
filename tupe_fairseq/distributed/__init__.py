"""Training by several processes, on one machine or several: scripts/train_distributed.sh."""

#: Environment variable with the process that started a worker.
LAUNCHER = "TUPE_FAIRSEQ_LAUNCHER"
