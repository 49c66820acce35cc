#!/usr/bin/env bash
# Tests and measurements for a machine with a GPU, in order of worth, and a report of them:
#
#   bash scripts/gpu_check.sh --until 10                     all parts, for ten minutes
#   bash scripts/gpu_check.sh --parts tests,benchmarks       some of them
#   bash scripts/gpu_check.sh --text wiki/AA --glue glue_data    the study too
#   PYTHON=python3 bash scripts/gpu_check.sh --no-install    with that Python, without .venv
#
# The same command continues where an earlier one was stopped; --help lists all flags. Results are in
# outputs/gpu (--out): report.md, a JSON file for each part, tests.jsonl; work/ holds logs and data.
# Without a GPU, every part runs at a size for a CPU (--size tiny), which measures nothing but proves
# that the parts run. Without fairseq or transformers, what needs them is reported as not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --no-install ]]; then
  shift
  python=${PYTHON:-python3}
else
  source scripts/environment.sh
  python=python
fi
exec env PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 \
  "$python" -m examples.gpu.check "$@"
