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
# Configures build/PRESET, from nothing when Python, torch, the compiler or the presets are others than they were; what
# CMake says is shown when it fails. Changes of CMakeLists.txt are seen by ninja.
configure() {
  local wanted torch
  torch=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true)
  wanted=$(echo "$python $torch $CXX" | cat - CMakePresets.json | sha256sum)
  [ "$(cat "build/$1/.configured" 2>/dev/null)" = "$wanted" ] && return 0
  mkdir -p "build/$1"
  rm -f "build/$1/CMakeCache.txt"
  cmake --preset "$1" -DPython_EXECUTABLE="$python" >"build/$1/configure.log" 2>&1 ||
    { cat "build/$1/configure.log"; return 1; }
  echo "$wanted" >"build/$1/.configured"
}
