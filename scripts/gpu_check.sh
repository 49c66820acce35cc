#!/usr/bin/env bash
# Run the measurements and tests for a GPU. Results are in outputs/gpu, or in the given folder. On one
# H200 it should take about 13 minutes, which has not been tried.
#
#   bash scripts/gpu_check.sh [FOLDER]                               creates or updates .venv first
#   PYTHON=python3 bash scripts/gpu_check.sh --no-install [FOLDER]   uses that Python and installs nothing
#   STEPS='kernels 32x512' bash scripts/gpu_check.sh                 these steps alone
#
# The most valuable step is the first. Each prints its tables, or the last line of its tests, when it
# ends, and writes NAME.log; benchmarks also write NAME.json and NAME.md. A step that fails or reaches
# its time limit does not stop the others, and the exit status is then 1; benchmarks keep the rounds
# that are complete. Without a GPU the steps run on the CPU at a tiny size, which shows that they work
# and measures nothing. Without fairseq, training is left out, and without triton its kernels.
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

has() { "$python" -c "import $1" 2>/dev/null; }

ours=learned,tupe_a,tupe_r,rope,deberta,deberta_v3
# In training in half precision on a GPU, auto selects triton where it is installed.
has triton && backends=auto,sdpa || backends=auto
# Tests share the GPU among processes.
has xdist && parallel=(-n 8) || parallel=()
if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  slower=1 chosen='not compile' compile=compile length=512 words=2000000 tiny=() tiny_model=() of_kernels=() interpreted=()
  compilable=$backends
  long=(--batch 8 --length 4096) attended=none,tupe_a,tupe_r,alibi,deberta
  at_512=(--lengths 512 --words 16384) at_4096=(--lengths 4096 --words 32768)
  peers=hf_roberta,hf_modernbert,hf_deberta_v2 packages=(flashdeberta disentangled_flash)
  trained=(learned tupe_a tupe_r) of_triton=() compiled=()
  model=(--arch tupe_roberta_base --fp16 --batch-size 32 --max-update 60)
  has transformers || peers=
  for package in "${packages[@]}"; do
    has "$package" && peers=$peers,$package
  done
else
  echo 'no GPU: the steps run on the CPU at a tiny size'
  export TUPE_FAIRSEQ_TEST_DEVICE=cpu
  slower=10 interpreted=(env TRITON_INTERPRET=1) compilable=sdpa
  has triton && backends=auto,triton
  chosen='tupe_r and not (compile or tie_cls or one_sided or toeplitz)' length=32 words=10000 long=()
  compile='compiled_layers and tupe_r' ours=tupe_r,deberta_v3 attended=tupe_r peers='' trained=(tupe_r)
  at_512=(--lengths 16 --words 32) at_4096=(--lengths 32 --words 32) parallel=()
  of_triton=(-k 'alibi or autocast') compiled=(--gpus 90 --widths 64) of_kernels=(--length 20 --width 16)
  tiny=(--device cpu --rounds 2 --layers 1 --width 16 --heads 2 --dtypes float32)
  tiny_model=(--ffn 32 --batch 2 --length 32)
  model=(--arch tupe_roberta --cpu --encoder-layers 1 --batch-size 2 --max-update 4)
fi

failed=0
wanted() { [[ -z ${STEPS-} || " $STEPS " == *" $1 "* ]]; } # NAME

step() { # SECONDS LINES NAME COMMAND...: at most so long; the last lines of its log are printed
  local name=$3 log=$out/$3.log status=passed start=$SECONDS
  wanted "$name" || return 0
  # Benchmarks write what they have when they are interrupted.
  timeout --foreground --signal INT --kill-after 10 $(($1 * slower)) "${@:4}" >"$log" 2>&1 ||
    { status=failed && failed=1; }
  echo "$name ... $status in $((SECONDS - start)) s ($log)"
  tail -n "$2" "$log"
}

benchmark() { # SECONDS KIND NAME FLAGS...
  step "$1" 40 "$3" "$python" "scripts/benchmark_$2.py" "${@:4}" "${tiny[@]}" \
    --json "$out/$3.json" --markdown "$out/$3.md"
}

tests() { # SECONDS NAME FLAGS...
  step "$1" 1 "$2" "$python" -m pytest -q "${parallel[@]}" "${@:3}"
}

train() { # ENCODING
  step 60 2 "train_$1" "$python" -m fairseq_cli.train "$out/data" --user-dir tupe_fairseq --position-encoding "$1" \
    "${model[@]}" --task masked_lm --criterion masked_lm --tokens-per-sample "$length" \
    --sample-break-mode none --required-batch-size-multiple 1 --max-positions "$length" \
    --optimizer adam --lr 1e-4 --clip-norm 1.0 --lr-scheduler polynomial_decay \
    --warmup-updates 2 --total-num-update 60 --log-format json --log-interval 2 \
    --disable-validation --no-save --save-dir "$out/checkpoints"
}

# Random words: only their number matters.
data() {
  wanted data || return 0
  awk -v n="$words" 'BEGIN { srand(1); for (i = 1; i <= n; i++)
    printf "w%d%s", 30000 * rand(), i % 1000 ? " " : "\n" }' >"$out/words.txt"
  rm -rf "$out/data"
  step 60 1 data "$python" -m fairseq_cli.preprocess --only-source --trainpref "$out/words.txt" \
    --destdir "$out/data"
}

# In brackets: seconds on an H200 with 16 cores, estimated.
steps=(--workloads gpu-32x512 "${tiny_model[@]}")
# [30] Whether the kernels are right on the device, and whose dropout is exact.
has triton && step 60 30 kernels "${interpreted[@]}" "$python" scripts/check_kernels.py "${of_kernels[@]}"
# [30, 40] One layer's attention.
benchmark 60 attention attention_512 --encodings "$attended" --backends "$backends" "${at_512[@]}"
benchmark 75 attention attention_4096 --encodings "$attended" --backends "$backends" "${at_4096[@]}"
# [80, 50, 60, 80] Whole steps.
benchmark 110 training 32x512 "${steps[@]}" --encodings "$ours" --backends "$backends" --peers "$peers"
benchmark 75 training 32x512_half_padding "${steps[@]}" --encodings "$ours" --backends "$backends" \
  --peers '' --padding 0.5
benchmark 90 training 8x4096 "${steps[@]}" --encodings learned,tupe_a,tupe_r --backends "$backends" \
  --peers '' "${long[@]}"
benchmark 110 training 32x512_compiled "${steps[@]}" --encodings "$ours" --backends "$compilable" \
  --peers '' --compile-layers
# [60, 100, 140] The tests for GPUs.
if has triton; then
  tests 100 triton "${of_triton[@]}" tests/kernels/test_triton.py tests/kernels/test_triton_distances.py \
    tests/attention/test_triton.py
fi
tests 150 tests_compiled -m gpu -k "$compile" tests/cuda
tests 240 tests -m gpu -k "$chosen" tests/cuda
# [20, 90] What 12 minutes may not reach.
has triton && step 60 20 triton_compiled "$python" scripts/compile_kernels.py "${compiled[@]}"
if has fairseq; then
  data
  for encoding in "${trained[@]}"; do
    train "$encoding"
  done
fi
exit "$failed"
