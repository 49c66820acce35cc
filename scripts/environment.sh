# shellcheck shell=bash
# Sourced by other scripts in the root of the repository: creates or updates .venv, with the versions
# of scripts/constraints.txt, and puts it on the PATH.
#
# .venv/installed identifies the installation. It is written last, so the next call completes an
# interrupted installation. PYTHON names another interpreter than python3.11, and TORCH another version
# of torch than 2.13.0: `PYTHON=python3.12 TORCH=2.14.1 bash scripts/test.sh`.

: "${TORCH:=2.13.0}"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# Print one line and end.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Print the path of the chosen Python, or of the first one that can run this package.
find_python() {
  local candidate path
  local -a candidates=(python3.11 python3.12 python3.13 python3.10 python3)
  [[ ! ${PYTHON-} ]] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    # A call, because a shim on the PATH may not work.
    path=$("$candidate" -c 'import sys
if (3, 10) <= sys.version_info < (3, 14):
    print(sys.executable)' 2>/dev/null) || continue
    if [[ -n $path ]]; then
      printf '%s\n' "$path"
      return
    fi
  done
  if [[ ! ${PYTHON-} ]] && command -v uv >/dev/null; then
    uv python find --system 3.11 2>/dev/null && return
    echo "getting Python 3.11 with uv" >&2
    { uv python install 3.11 >&2 && uv python find --system 3.11; } ||
      fail "uv cannot get Python 3.11."
    return
  fi
  fail "Python 3.10 to 3.13 is needed (best: 3.11), but $candidate is" \
    "$("$candidate" --version 2>/dev/null || echo 'not there'). Install one (Debian, Ubuntu:" \
    "apt install python3-venv; macOS: brew install python@3.11), or install uv, which gets one:" \
    "curl -LsSf https://astral.sh/uv/install.sh | sh"
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
  printf 'torch %s in %s\n' "$TORCH" "$PWD"
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
  [[ ! -L .venv ]] || fail ".venv is a link to $(readlink .venv), which would be replaced:" \
    "remove the link."
  echo "making .venv with $python"
  "$python" -m venv --clear .venv >/dev/null 2>&1 || fail "$python cannot make a virtual" \
    "environment (on Debian and Ubuntu: apt install python3-venv)."
}

# Whether there is a wheel of fairseq for this Python and system (scripts/fairseq.md).
has_fairseq_wheel() {
  [[ $(uname -sm) == "Linux x86_64" ]] &&
    .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] not in {(3, 11), (3, 12)})'
}

# End with an error where fairseq cannot be built.
need_compiler() {
  local headers='from os.path import exists
from sysconfig import get_path
raise SystemExit(not exists(get_path("include") + "/Python.h"))'
  command -v "${CXX:-c++}" >/dev/null && .venv/bin/python -c "$headers" && return
  fail "fairseq must be built for this Python, but its headers (Python.h) or a C++ compiler" \
    "(${CXX:-c++}) are missing: install both (Debian, Ubuntu: apt install g++ python3-dev; macOS:" \
    "xcode-select --install), or use Python 3.11 or 3.12 on Linux x86-64, which need neither."
}

install_packages() {
  local -a index=() build=()
  has_fairseq_wheel || need_compiler
  # On Linux the usual torch brings gigabytes of CUDA libraries; without a GPU, take the CPU build.
  if [[ $(uname -s) == Linux ]] && ! command -v nvidia-smi >/dev/null; then
    index=(--retries 1 --extra-index-url https://download.pytorch.org/whl/cpu)
  fi
  echo "installing torch $TORCH"
  pip_install --no-deps "${index[@]+"${index[@]}"}" "torch==$TORCH"
  # Builds use the installed packages, whose versions are pinned.
  pip_install "torch==$TORCH" setuptools numpy cython
  if .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then
    # pip 24.1 and later refuse the metadata of fairseq 0.12.2. Where it finds torch, its build
    # compiles sources that its archive lacks, so it is built in isolation, before the rest.
    pip_install 'pip<24.1'
  else
    build=(--no-build-isolation)
  fi
  if has_fairseq_wheel; then
    echo "installing fairseq"
  else
    echo "building fairseq from source, which takes about three minutes"
  fi
  pip_install --no-deps --require-hashes "${build[@]+"${build[@]}"}" -r scripts/fairseq.txt
  echo "installing this package"
  pip_install --no-build-isolation --use-pep517 -e '.[viz,test]' "torch==$TORCH"
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
