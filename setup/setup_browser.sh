#!/bin/sh
# Installs Chromium for the tests of the console from the distribution, unless it is installed.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        echo "setup-browser: $(command -v "$name") is in place"
        exit 0
    fi
done
if ! command -v apt-get >/dev/null; then
    echo "setup-browser: no apt-get found: install Chromium with your package manager" \
        "(Fedora: dnf install chromium; macOS: brew install --cask chromium)" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "setup-browser: only root can install packages: run sudo apt-get install chromium" >&2
        exit 1
    fi
    as_root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
# The package lists of a new machine may be empty or old, so update them only after a failure.
$as_root apt-get install -y -q --no-install-recommends chromium \
    || { $as_root apt-get update -q && $as_root apt-get install -y -q --no-install-recommends chromium; }
echo "setup-browser: $(command -v chromium) is in place"
