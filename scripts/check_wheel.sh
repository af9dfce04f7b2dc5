#!/usr/bin/env bash
# Build the source archive and from it the wheel, both in dist/, install the wheel alone in a fresh environment and use it there:
# what is missing from it, or from the dependencies that it names, shows here and not at somebody's first try. Another interpreter:
# PYTHON=python3.13 scripts/check_wheel.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD/src
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3}" -m venv "$work/venv"
python=$work/venv/bin/python
install=("$python" -m pip install --quiet --only-binary :all: --constraint constraints.txt)
"${install[@]}" pip
rm -rf dist
"${PYTHON:-python3}" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --only-binary :all: --constraint constraints.txt hatchling
"$work/build/bin/python" -m hatchling build --target sdist --directory dist
"$python" -m pip wheel --quiet --no-deps --build-constraint constraints.txt --wheel-dir dist dist/brinell-*.tar.gz
python3 scripts/check_release.py dist
began=$SECONDS
"${install[@]}" dist/brinell-*.whl
installed_in=$((SECONDS - began))
"$python" -m pip check
echo "$("$python" -m pip list --format freeze | wc -l) packages"

# Away from the sources, so that nothing is imported from them.
cd "$work"
unset PYTHONPATH
export BRINELL_CACHE=$work/cache PATH=$work/venv/bin:$PATH
installed=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
files() { (cd "$1" && find brinell -type f -not -path '*/__pycache__/*' | sort); }
diff <(files "$source") <(files "$installed") || { echo "the wheel lacks files (<) or has others (>)"; exit 1; }

brinell --version
brinell plugins
began=$SECONDS
brinell audit --out run # what a newcomer types first
test -s run/report.html
audited_in=$((SECONDS - began))
echo "$((installed_in + audited_in)) s from the wheel to a report: pip install $installed_in s, brinell audit $audited_in s"
