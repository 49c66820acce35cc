# shellcheck shell=bash
# Sourced by other scripts in the root of the repository: creates or updates .venv, with the versions
# of scripts/constraints.txt, and puts it on the PATH.
#
# .venv/installed identifies the installation. It is written last, so the next call completes an
# interrupted installation. PYTHON names another interpreter than python3.11:
# `PYTHON=python3.12 bash scripts/test.sh`.

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# Print one line and end.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Print the path of the chosen Python, or of the first one that can run this package.
find_python() {
  local candidate path
  local -a candidates=(python3.11 python3)
  [[ ! ${PYTHON-} ]] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    # A call, since a shim on the PATH may not work.
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

# Whether .venv has the chosen Python, if one was chosen.
of_chosen_python() {
  local chosen made version='import sys; print(sys.version)'
  [[ ${PYTHON-} ]] || return 0
  chosen=$("$PYTHON" -c "$version" 2>/dev/null) || return
  made=$(.venv/bin/python -c "$version" 2>/dev/null) && [[ $made == "$chosen" ]]
}

# Identifies an up-to-date .venv.
wanted_installation() {
  printf 'installed in %s\n' "$PWD"
  cksum setup.py scripts/constraints.txt scripts/fairseq.txt scripts/environment.sh
}

# Run pip; an error is reported in one line.
pip_install() {
  local log=.venv/install.log
  .venv/bin/python -m pip install --progress-bar off -c scripts/constraints.txt "$@" \
    >"$log" 2>&1 && return
  if grep -q 'No matching distribution' "$log" && grep -q 'Failed to establish' "$log"; then
    fail "no network: pip cannot reach the package index (its output: $log)."
  fi
  fail "the installation failed: $(grep -i error "$log" | tail -n 1) (all of it: $log)"
}

# Create .venv, unless there is one for this folder and Python.
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
  # Builds use the installed packages, whose versions are pinned.
  pip_install torch==2.13.0 setuptools numpy cython
  echo "installing fairseq and this package"
  # pip 24.1 and later refuse the metadata of fairseq 0.12.2.
  if .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then
    pip_install 'pip<24.1'
  fi
  # Where it finds torch, the build of fairseq 0.12.2 compiles sources that its archive lacks, so it
  # is built in isolation, before the rest.
  pip_install --no-deps --require-hashes -r scripts/fairseq.txt
  pip_install --no-build-isolation --use-pep517 -e '.[viz,test]' torch==2.13.0
  # Only fairseq's tasks for speech use it. Its build for CUDA does not load beside torch for the CPU,
  # and transformers 5 imports it where it is installed.
  .venv/bin/python -m pip uninstall --quiet --yes torchaudio >/dev/null 2>&1
}

setup_environment() {
  local stamp=.venv/installed python
  if [[ ! -e $stamp || $(<"$stamp") != "$(wanted_installation)" ]] || ! of_chosen_python; then
    python=$(find_python)
    # One installation at a time: a lock on this file, held until it is closed. Nothing is written,
    # but NFS locks only files that are open for writing; some file systems have no locks.
    exec 8>>scripts/environment.sh
    "$python" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX)' 2>/dev/null || true
    make_venv "$python"
    install_packages
    wanted_installation >"$stamp.partial"
    mv "$stamp.partial" "$stamp"
    exec 8>&-
  fi
  export PATH="$PWD/.venv/bin:$PATH"
}

setup_environment
