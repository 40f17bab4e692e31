#!/usr/bin/env bash
# Builds the wheel and the sdist and tries each in a clean environment: `bash tests/packaging/smoke.sh [FOLDER]`.
# The wheel is tried alone (torch and NumPy) and with the demo's extras; the sdist must give the same wheel.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
work="${1:-$(mktemp -d)}"
mkdir -p "$work"
cd "$root"
.venv/bin/python -m build --no-isolation --outdir "$work/dist" . >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log"; exit 1; }
wheel=("$work"/dist/*.whl)
sdist=("$work"/dist/*.tar.gz)
echo "built $(basename "${wheel[0]}") and $(basename "${sdist[0]}")"

python3 -m venv "$work/clean"
clean="$work/clean/bin"
"$clean/python" -m pip install --quiet -c constraints.txt "${wheel[0]}"
cd "$work"  # away from the checkout, so that nothing is imported from it
"$clean/python" "$root/tests/packaging/core.py"
if "$clean/onelabel" --help 2>"$work/error.txt"; then echo "the command line ran without its extra"; exit 1; fi
grep -q "pip install 'onelabel\[" "$work/error.txt"
echo "the wheel alone: losses, labels and metrics work; the program says what to install"

"$clean/python" -m pip install --quiet -c "$root/constraints.txt" "${wheel[0]}[vision,sklearn,report]"
"$clean/onelabel" doctor --out "$work"
"$clean/onelabel" demo --tiny --out "$work/demo" >/dev/null
test -s "$work/demo/report.html"
echo "with extras: doctor and the tiny demo"

"$clean/python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall "${sdist[0]}" 2>/dev/null ||
  "$clean/python" -m pip install --quiet --no-deps --force-reinstall "${sdist[0]}"
"$clean/python" "$root/tests/packaging/core.py"
echo "the sdist installs and works"
