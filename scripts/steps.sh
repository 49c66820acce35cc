# shellcheck shell=bash
# Sourced by scripts that consist of steps. Completed steps are skipped; interrupted ones are resumed
# or repeated.
#
# A step is a shell function NAME that writes to $work/NAME. It is complete if $work/.steps/NAME holds
# its key: a checksum of the function, of its input files and of the previous steps. So a step is
# repeated if its command, its inputs or a previous step has changed.

# `python -m examples...` then works in every folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
work=.quickstart
last_key=
child=

# fail MESSAGE: end the script.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# step [--resumable] NAME TITLE [INPUT...]: run NAME if necessary; it writes to $out.
#
# $out is an empty folder that replaces $work/NAME at the end. A resumable step writes to $work/NAME
# itself, where it finds the output of an interrupted call with the same key.
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
  # A mark must not outlive the files in a power failure.
  sync -f "$out"
  if [[ ! $resumable ]]; then
    rm -rf "${work:?}/$name"
    mv "$out" "$work/$name"
  fi
  write "$marks/$name" "$key"
  printf '   %d s\n' $((SECONDS - start))
}

# run COMMAND...: print and run it; its output goes to the step's log. On a terminal, stderr remains
# there, for progress bars, unless the script sets $quiet.
run() {
  local status=0
  printf '   $%s\n' "$(printf ' %q' "$@")"
  if [[ -t 2 && ! ${quiet-} ]]; then
    wait_for "$@" >>"$log" || status=$?
  else
    wait_for "$@" >>"$log" 2>&1 || status=$?
  fi
  ((status == 0)) && return
  fail "$1 exited with status $status: $(tail -n 1 "$log" | cut -c 1-300) (log: $log)"
}

# show COMMAND...: run it; its output, which ends with one line after an error, is shown.
show() {
  wait_for "$@" || exit
}

# Run a command in the background and wait for it: a shell that waits for a foreground process
# does not handle SIGTERM.
wait_for() {
  local status=0
  "$@" </dev/null &
  child=$!
  wait "$child" || status=$?
  child=
  return "$status"
}

# Whether the file exists and contains exactly this text.
holds() {
  [[ -e $1 && $(<"$1") == "$2" ]]
}

# Write a file atomically.
write() {
  printf '%s\n' "$2" >"$1.partial"
  mv "$1.partial" "$1"
}

# Remove damaged checkpoints of a folder, which would stop fairseq from resuming, and restore
# checkpoint_last.pt from the newest complete one.
repair_checkpoints() {
  python "$root/tupe_fairseq/fairseq/checkpoints/intact.py" "$1" ||
    fail "cannot repair the checkpoints in $1 (python exited with status $?)."
}

# One call at a time: this shell and the commands that it runs hold the lock, also those that a
# killed call has left behind.
lock_work() {
  { mkdir -p "$work" && : >>"$work/.lock"; } 2>/dev/null || fail "cannot write in $work."
  exec 9>>"$work/.lock"
  # By Python, because not every system has `flock`. Some network file systems have no locks.
  local lock='import fcntl, sys; fcntl.flock(9, fcntl.LOCK_EX | (len(sys.argv) > 1) * fcntl.LOCK_NB)'
  python -c "$lock" now 2>/dev/null || {
    echo "waiting for another call, or for processes left by a killed call, to end"
    python -c "$lock" 2>/dev/null || true
  }
}

# Remove everything but the lock.
reset_work() {
  find "$work" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
}

# Stop the running command, and wait until it has stopped those that it has started.
stop() {
  if [[ $child ]]; then
    kill "$child" 2>/dev/null || true
    wait "$child" || true
  fi
  exit 130
}
trap stop INT TERM HUP
