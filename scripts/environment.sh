# shellcheck shell=bash
# Sourced by the other scripts, from the repository root: makes .venv with everything this package
# needs, and puts it on the PATH. Does nothing more than the latter when .venv is up to date.
#
# The versions are those of scripts/constraints.txt. .venv/installed says what was installed; it
# is written last, so an installation that was cut off is completed by the next call. PYTHON names
# another interpreter than python3.11: `PYTHON=python3.12 bash scripts/test.sh`.

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# Print one line and end.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The first Python that can run this package, or the chosen one; prints its path.
find_python() {
  local candidate path
  local -a candidates=(python3.11 python3)
  [[ ! ${PYTHON-} ]] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    # A shim may be on the PATH and lead nowhere, hence the call.
    path=$("$candidate" -c 'import sys
if (3, 10) <= sys.version_info < (3, 13):
    print(sys.executable)' 2>/dev/null) || continue
    if [[ -n $path ]]; then
      printf '%s\n' "$path"
      return
    fi
  done
  fail "Python 3.10, 3.11 or 3.12 is needed (best: 3.11), but $candidate is" \
    "$("$candidate" --version 2>/dev/null || echo 'not there')."
}

# Whether .venv is of the Python that was chosen, if one was.
of_chosen_python() {
  local chosen made version='import sys; print(sys.version)'
  [[ ${PYTHON-} ]] || return 0
  chosen=$("$PYTHON" -c "$version" 2>/dev/null) || return
  made=$(.venv/bin/python -c "$version" 2>/dev/null) && [[ $made == "$chosen" ]]
}

# What an up-to-date .venv was made from.
wanted_installation() {
  printf 'installed in %s\n' "$PWD"
  cksum setup.py scripts/constraints.txt scripts/environment.sh
}

# Run pip and tell in one line what went wrong.
pip_install() {
  local log=.venv/install.log
  .venv/bin/python -m pip install --progress-bar off -c scripts/constraints.txt "$@" \
    >"$log" 2>&1 && return
  if grep -q 'No matching distribution' "$log" && grep -q 'Failed to establish' "$log"; then
    fail "no network: pip cannot reach the package index (its output: $log)."
  fi
  fail "the installation failed: $(grep -i error "$log" | tail -n 1) (all of it: $log)"
}

# Make .venv anew where there is none, or one of another folder or Python, or of one that is gone.
make_venv() {
  local python=$1 made_in
  made_in=$(.venv/bin/python -c 'import sys; print(sys.prefix)' 2>/dev/null) || made_in=
  if [[ $made_in == "$PWD/.venv" ]] && of_chosen_python &&
    grep -qsF "$PWD" .venv/bin/activate; then
    return
  fi
  echo "making .venv with $python"
  "$python" -m venv --clear .venv >/dev/null 2>&1 || fail "$python cannot make a virtual" \
    "environment (on Debian and Ubuntu: apt install python3-venv)."
}

install_packages() {
  local -a index=()
  # On Linux the usual torch brings gigabytes of CUDA libraries; without a GPU, take the CPU build.
  if [[ $(uname -s) == Linux ]] && ! command -v nvidia-smi >/dev/null; then
    index=(--retries 1 --extra-index-url https://download.pytorch.org/whl/cpu)
  fi
  echo "installing torch 2.13.0"
  pip_install --no-deps "${index[@]+"${index[@]}"}" torch==2.13.0
  # Builds take what is installed, so that nothing unpinned takes part in them.
  pip_install torch==2.13.0 setuptools numpy cython
  echo "installing fairseq and this package"
  # Where it finds torch, the build of fairseq 0.12.2 compiles sources that its archive lacks, so
  # there it is built by itself; its metadata is refused by pip 24.1 and later.
  if .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then
    pip_install 'pip<24.1'
    pip_install torch==2.13.0 fairseq==0.12.2
  fi
  pip_install --no-build-isolation --use-pep517 -e '.[viz,test]' torch==2.13.0
}

setup_environment() {
  local stamp=.venv/installed python
  if [[ ! -e $stamp || $(<"$stamp") != "$(wanted_installation)" ]] || ! of_chosen_python; then
    python=$(find_python)
    # One installation at a time: a lock on this file, held until it is closed.
    exec 8<scripts/environment.sh
    "$python" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX)'
    make_venv "$python"
    install_packages
    wanted_installation >"$stamp.partial"
    mv "$stamp.partial" "$stamp"
    exec 8<&-
  fi
  export PATH="$PWD/.venv/bin:$PATH"
}

setup_environment
