#!/usr/bin/env bash
# Run the tests and measurements for a GPU. Results are in outputs/gpu, or in the given folder.
#
#   bash scripts/gpu_check.sh [FOLDER]                               creates or updates .venv first
#   PYTHON=python3 bash scripts/gpu_check.sh --no-install [FOLDER]   uses that Python and installs nothing
#
# Each step writes NAME.log; benchmarks also write NAME.json and NAME.md. A step that fails does not
# stop the others, and the exit status is then 1. Without a GPU the steps run on the CPU at a tiny
# size, which shows that they work and measures nothing. Without fairseq, training is left out, and
# without triton its kernels.
set -euo pipefail
called_in=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' scripts/gpu_check.sh && exit ;; esac
if [[ ${1-} == --no-install ]]; then
  shift
  python=${PYTHON:-python3}
else
  source scripts/environment.sh
  python=python
fi
out=${1:-$PWD/outputs/gpu}
[[ $out == /* ]] || out=$called_in/$out
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  chosen='' length=512 words=2000000 tiny=() tiny_model=() long=(--batch 8 --length 4096)
  timed=learned,tupe_a,tupe_r,t5,rope,none attended=none,t5,tupe_a,tupe_r,alibi peers=()
  trained=(learned tupe_a tupe_r) of_triton=() compiled=()
  model=(--arch tupe_roberta_base --fp16 --batch-size 32 --max-update 60)
else
  echo 'no GPU: the steps run on the CPU at a tiny size'
  export TUPE_FAIRSEQ_TEST_DEVICE=cpu
  chosen='tupe_r and not (compile or tie_cls or one_sided or toeplitz)' length=32 words=10000 long=()
  timed=tupe_r attended=tupe_r peers=(--peers '') trained=(tupe_r)
  of_triton=(-k 'alibi or autocast') compiled=(--gpus 90 --widths 64)
  tiny=(--device cpu --rounds 2 --layers 1 --width 16 --heads 2 --dtypes float32)
  tiny_model=(--ffn 32 --batch 2 --length 32)
  model=(--arch tupe_roberta --cpu --encoder-layers 1 --batch-size 2 --max-update 4)
fi

failed=0
step() { # NAME COMMAND...
  local log=$out/$1.log status=passed start=$SECONDS
  printf '%s ... ' "$1"
  "${@:2}" >"$log" 2>&1 || { status=failed failed=1; }
  echo "$status in $((SECONDS - start)) s ($log)"
}

benchmark() { # KIND NAME FLAGS...
  step "$2" "$python" "scripts/benchmark_$1.py" "${@:3}" "${tiny[@]}" \
    --json "$out/$2.json" --markdown "$out/$2.md"
}

train() { # ENCODING
  "$python" -m fairseq_cli.train "$out/data" --user-dir tupe_fairseq --position-encoding "$1" \
    "${model[@]}" --task masked_lm --criterion masked_lm --tokens-per-sample "$length" \
    --sample-break-mode none --required-batch-size-multiple 1 --max-positions "$length" \
    --optimizer adam --lr 1e-4 --clip-norm 1.0 --lr-scheduler polynomial_decay \
    --warmup-updates 2 --total-num-update 60 --log-format json --log-interval 2 \
    --disable-validation --no-save --save-dir "$out/checkpoints"
}

# Random words: only their number matters.
data() {
  awk -v n="$words" 'BEGIN { srand(1); for (i = 1; i <= n; i++)
    printf "w%d%s", 30000 * rand(), i % 1000 ? " " : "\n" }' >"$out/words.txt"
  rm -rf "$out/data"
  "$python" -m fairseq_cli.preprocess --only-source --trainpref "$out/words.txt" \
    --destdir "$out/data"
}

if "$python" -c 'import triton' 2>/dev/null; then
  step triton "$python" -m pytest "${of_triton[@]}" tests/kernels/test_triton.py tests/attention/test_triton.py
  step triton_compiled "$python" scripts/compile_kernels.py "${compiled[@]}"
fi
step tests "$python" -m pytest -m gpu -k "$chosen" tests/cuda
steps=(--workloads gpu-32x512 --encodings "$timed" "${tiny_model[@]}")
benchmark training 32x512 "${steps[@]}" "${peers[@]}"
benchmark training 32x512_half_padding "${steps[@]}" --peers '' --padding 0.5
benchmark training 8x4096 "${steps[@]}" --peers '' "${long[@]}"
benchmark attention attention --encodings "$attended" --lengths "$length"
if "$python" -c 'import fairseq' 2>/dev/null; then
  step data data
  for encoding in "${trained[@]}"; do
    step "train_$encoding" train "$encoding"
  done
fi
exit "$failed"
