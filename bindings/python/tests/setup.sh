#!/bin/bash
# setup.sh DIR [REQUIREMENTS]: makes DIR a virtual environment with what the tests of the Python package need (requirements.txt beside this
# file), or with what the file REQUIREMENTS lists. Returns at once where it is complete. The package itself is not in it: the tests install
# the wheel that they test.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || [ $# = 2 ] || { echo "usage: setup.sh DIR [REQUIREMENTS]" >&2; exit 2; }
V=$1
REQUIREMENTS=${2:-$HERE/requirements.txt}
fail() { echo "bindings/python/tests/setup.sh: $*" >&2; exit 1; }

PYTHON=${PYTHON:-python3}
command -v "$PYTHON" >/dev/null || fail "python3 is missing; run: apt-get install python3-venv"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is wanted; this is $("$PYTHON" --version)"
[ -r "$REQUIREMENTS" ] || fail "$REQUIREMENTS cannot be read; name a file of packages as pip takes it"
STAMP=$({ cat "$HERE/setup.sh" "$REQUIREMENTS"; "$PYTHON" --version; } | sha256sum | cut -d' ' -f1)
complete() { [ "$(cat "$V/stamp" 2>/dev/null)" = "$STAMP" ]; }
complete && exit 0

mkdir -p "$V"
exec 9>"$V.lock"
flock 9
complete && exit 0
rm -rf "$V"
"$PYTHON" -m venv "$V" || fail "no virtual environment can be made; run: apt-get install python3-venv"
"$V/bin/python" -m pip install -q --disable-pip-version-check -r "$REQUIREMENTS" ||
  fail "pip failed; look at what it says, and run again: $0 $V${2:+ $2}"
echo "$STAMP" >"$V/stamp"
