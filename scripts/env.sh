# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: where things are.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=${VIRTUAL_ENV:-$root/.venv}
python=$venv/bin/python
jobs=$(nproc)
# pip's builds would call it g++, and the compiler cache takes that for another compiler.
export CXX=${CXX:-c++}
say() { printf '\n== %s\n' "$*"; }
# Configures build/PRESET; what CMake says is shown when it fails.
configure() {
  mkdir -p build
  cmake --preset "$1" -DPython_EXECUTABLE="$python" >"build/$1-configure.log" 2>&1 ||
    { cat "build/$1-configure.log"; return 1; }
}
