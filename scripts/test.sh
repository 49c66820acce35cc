#!/usr/bin/env bash
# Run the test suite in .venv, which is created or updated first; arguments are passed to pytest.
#
#   bash scripts/test.sh                          everything
#   bash scripts/test.sh -m 'not slow' tests/fairseq/models
#
# TRITON names another version of triton than 3.8.0, for another torch (scripts/environment.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
: "${TRITON:=3.8.0}"
# Tests of a released BERT skip where it cannot be fetched.
bash scripts/released_model.sh || true
# The kernels for GPUs run in Triton's interpreter; torch for the CPU does not bring it. Its tests skip
# where it cannot be installed.
if [[ $(uname -sm) == "Linux x86_64" ]] && ! .venv/bin/python -c 'import triton' 2>/dev/null; then
  echo "installing triton $TRITON"
  .venv/bin/python -m pip install --quiet --no-deps "triton==$TRITON" >.venv/triton.log 2>&1 ||
    echo "triton cannot be installed: its tests skip (output of pip: .venv/triton.log)"
fi

# A process a core, each with one thread.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
exec python -m pytest --numprocesses auto --dist worksteal "$@"
