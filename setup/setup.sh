#!/bin/sh
# Finds a Python that is new enough and runs install.py with it; PYTHON=... names one.
set -eu
for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" "$(dirname "$0")/install.py" "$@"
    fi
done
echo "setup: no Python 3.11 or newer found${PYTHON:+ at $PYTHON}: install it (Debian and Ubuntu:" \
    "apt install python3 python3-venv; macOS: brew install python@3.13)," \
    "or name one: make setup PYTHON=/path/to/python3" >&2
exit 1
