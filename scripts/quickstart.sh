#!/usr/bin/env bash
# From raw text to a fine-tuned model: pre-trains a small TUPE RoBERTa, fine-tunes it to classify movie
# reviews as positive or negative, and evaluates both. Needs Python 3.11 and pip; takes a few minutes
# on two CPU cores and uses a GPU if there is one.
#
#   bash scripts/quickstart.sh           continue the last call
#   bash scripts/quickstart.sh --fresh   start over
#
# All output is in .quickstart/ (and .venv/); examples/quickstart/README.md describes the steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
source scripts/steps.sh

fresh=
for argument in "$@"; do
  case $argument in
    --fresh) fresh=yes ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' scripts/quickstart.sh && exit ;;
    *) printf 'error: unknown argument %q; the only one is --fresh.\n' "$argument" >&2 && exit 2 ;;
  esac
done

examples=examples/quickstart
export PYTHONWARNINGS=ignore
# Waiting threads yield the core: on a busy machine, spinning makes training ten times slower.
export OMP_WAIT_POLICY=PASSIVE

# fairseq-train on this device, from the last checkpoint in $out.
train() {
  local -a flags=(--log-format simple)
  [[ -t 2 ]] && flags=(--log-format tqdm)
  python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || flags+=(--cpu)
  repair_checkpoints "$out"
  run fairseq-train "$@" --save-dir "$out" "${flags[@]}"
  [[ -e $out/checkpoint_last.pt ]] || fail "fairseq-train has trained nothing; see $log."
}

download() {
  # pip verifies the checksum before it opens the file, and builds with the packages of .venv.
  run python -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes \
    --requirement $examples/data.txt --dest "$out"
}

text() {
  run python -m examples.quickstart.prepare $work/download/vaderSentiment-3.3.2.tar.gz "$out"
}

pieces() {
  run python -m examples.quickstart.tokenizer $work/text "$out"
}

data() {
  run fairseq-preprocess --only-source --destdir "$out/pretrain" \
    --trainpref $work/pieces/pretrain.train --validpref $work/pieces/pretrain.valid
  run fairseq-preprocess --only-source --destdir "$out/sentiment/input0" \
    --srcdict "$out/pretrain/dict.txt" --trainpref $work/pieces/train.input0 \
    --validpref $work/pieces/valid.input0 --testpref $work/pieces/test.input0
  run fairseq-preprocess --only-source --destdir "$out/sentiment/label" \
    --trainpref $work/text/train.label --validpref $work/text/valid.label \
    --testpref $work/text/test.label
}

# No dropout: two epochs are too few to overfit. Each snippet is a sequence.
pretrain() {
  train $work/data/pretrain --user-dir tupe_fairseq --task masked_lm --criterion masked_lm \
    --arch tupe_roberta_tiny --sample-break-mode eos --tokens-per-sample 128 \
    --skip-invalid-size-inputs-valid-test --dropout 0 --attention-dropout 0 \
    --max-tokens 2048 --max-update 400 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 \
    --clip-norm 1.0 --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 40 \
    --total-num-update 400 --num-workers 0 --seed 1 --log-interval 20 \
    --no-epoch-checkpoints --save-interval-updates 100 --keep-interval-updates 1
}

finetune() {
  train $work/data/sentiment --user-dir tupe_fairseq --task sentence_prediction \
    --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2 \
    --arch tupe_roberta_tiny --max-positions 128 \
    --finetune-from-model $work/pretrain/checkpoint_last.pt \
    --batch-size 64 --max-update 280 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 \
    --clip-norm 1.0 --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 60 \
    --total-num-update 280 --num-workers 0 --seed 1 --log-interval 20 \
    --no-epoch-checkpoints --save-interval-updates 70 --keep-interval-updates 1 \
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
}

# A folder for each model with all files that it needs.
models() {
  local tokenizer=$work/pieces/sentencepiece.bpe.model data=$work/data
  mkdir -p "$out/pretrained" "$out/sentiment/input0" "$out/sentiment/label"
  run cp $work/pretrain/checkpoint_last.pt "$out/pretrained/model.pt"
  run cp $data/pretrain/dict.txt $tokenizer "$out/pretrained/"
  run cp $work/finetune/checkpoint_best.pt "$out/sentiment/model.pt"
  run cp $data/sentiment/input0/dict.txt "$out/sentiment/input0/"
  run cp $data/sentiment/label/dict.txt "$out/sentiment/label/"
  run cp $data/pretrain/dict.txt $tokenizer "$out/sentiment/"
}

results() {
  run python -m examples.quickstart.evaluate $work/models $work/data/pretrain $work/text "$out"
}

# The positions of an average snippet; later ones are rare.
figures() {
  run python scripts/plot_positional_correlations.py $work/models/pretrained --length 32 \
    --out "$out/positional_correlations.png"
}

lock_work
[[ ! $fresh ]] || reset_work
step download "Fetch text and labels" $examples/data.txt
step text "Split text and labels" $examples/prepare.py
step pieces "Train a vocabulary" $examples/tokenizer.py
step data "Binarise"
step --resumable pretrain "Pre-train with masked words"
step --resumable finetune "Fine-tune on movie reviews"
step models "Collect the models"
step results "Evaluate, and fill a mask" $examples/evaluate.py
step figures "Draw the positional correlations" \
  scripts/plot_positional_correlations.py tupe_fairseq/plots.py
python -m examples.quickstart.report $work
