#!/usr/bin/env bash
# Run the test suite in .venv, which is created or updated first; arguments are passed to pytest.
#
#   bash scripts/test.sh                          everything
#   bash scripts/test.sh -m 'not slow' tests/fairseq/models
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
# Tests of a released BERT skip where it cannot be fetched.
bash scripts/released_model.sh || true

# A process a core, each with one thread.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
exec python -m pytest --numprocesses auto --dist worksteal "$@"
