# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: where things are.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=${VIRTUAL_ENV:-$root/.venv}
python=$venv/bin/python
jobs=$(nproc)
say() { printf '\n== %s\n' "$*"; }
