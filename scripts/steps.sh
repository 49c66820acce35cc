# shellcheck shell=bash
# Sourced by quickstart.sh: steps that are skipped when done, resumed or redone when cut off.
#
# A step is a shell function NAME that leaves its output in $work/NAME. It is done when
# $work/.steps/NAME holds its key: a checksum of the function, of the files it names as inputs and
# of the steps before it. So a step whose command, inputs or forerunners changed is done again.

# So that `python -m examples...` finds the recipes, whatever folder the caller is in.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
work=.quickstart
last_key=
child=

# step [--resumable] NAME TITLE [INPUT...]: run NAME where needed; $out is where it writes.
#
# $out is a folder beside $work/NAME, empty at the start, which takes its place at the end; what was
# there stays until then. A resumable step writes into $work/NAME itself and finds there what an
# earlier call of the same key has left.
step() {
  local resumable= name title key log out marks=$work/.steps
  [[ $1 == --resumable ]] && resumable=yes && shift
  name=$1 title=$2
  shift 2
  key=$({ printf '%s\n' "$last_key"; declare -f "$name"; cat -- /dev/null "$@"; } | cksum)
  last_key=$key
  if holds "$marks/$name" "$key"; then
    printf '== %s: done already\n' "$title"
    return
  fi
  printf '== %s\n' "$title"
  mkdir -p "$marks" "$work/logs"
  rm -f "$marks/$name"
  log=$work/logs/$name.log
  if [[ $resumable ]]; then
    out=$work/$name
    holds "$marks/$name.begun" "$key" || rm -rf "${out:?}"
    write "$marks/$name.begun" "$key"
  else
    out=$work/$name.partial
    rm -rf "${out:?}"
    : >"$log"
  fi
  mkdir -p "$out"
  local start=$SECONDS
  "$name"
  if [[ ! $resumable ]]; then
    rm -rf "${work:?}/$name"
    mv "$out" "$work/$name"
  fi
  write "$marks/$name" "$key"
  printf '   %d s\n' $((SECONDS - start))
}

# run COMMAND...: show it and run it; its output goes to the step's log. On a terminal, stderr is
# left there, for fairseq's progress bar.
run() {
  local status=0
  printf '   $%s\n' "$(printf ' %q' "$@")"
  # In the background, since a shell that waits for the foreground does not pass SIGTERM on.
  if [[ -t 2 ]]; then
    "$@" </dev/null >>"$log" &
  else
    "$@" </dev/null >>"$log" 2>&1 &
  fi
  child=$!
  wait "$child" || status=$?
  child=
  ((status == 0)) && return
  [[ -t 2 ]] || tail -n 5 "$log" >&2
  fail "$1 ended with status $status; its output is in $log."
}

# Whether the file is there and holds exactly this text.
holds() {
  [[ -e $1 && $(<"$1") == "$2" ]]
}

# Write a file whole or not at all.
write() {
  printf '%s\n' "$2" >"$1.partial"
  mv "$1.partial" "$1"
}

# Remove damaged checkpoints of a folder, which would stop fairseq from resuming, and restore
# checkpoint_last.pt from the newest complete one.
repair_checkpoints() {
  python "$root/tupe_fairseq/checkpoints/whole.py" "$1" ||
    fail "cannot repair the checkpoints in $1 (python ended with status $?)."
}

# One call at a time: this shell and the commands that it runs hold the lock, also those that a
# killed call has left behind.
lock_work() {
  mkdir -p "$work"
  exec 9>>"$work/.lock"
  python -m examples.shared.locks 9 2>/dev/null || fail "cannot lock $work/.lock."
}

# Remove everything but the lock.
reset_work() {
  find "$work" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
}

trap '[[ ! $child ]] || kill "$child" 2>/dev/null; exit 130' INT TERM HUP
