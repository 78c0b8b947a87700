#!/bin/sh
# Build service/console/assets/vendor/codemirror.js from its npm packages: one module, with the
# packages' versions and their licence at its head. Needs node and npm; no user needs this script.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/entry.js" "$work"
cd "$work"
npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts
{
    echo '/*! CodeMirror 6, bundled by setup/codemirror/build.sh from these packages:'
    sed -n 's/^    "\(.*\)": "\([0-9.]*\)",*$/     \1 \2/p' package.json | grep -v esbuild
    echo
    cat node_modules/@codemirror/view/LICENSE
    echo '*/'
} > head.js
node_modules/.bin/esbuild entry.js --bundle --format=esm --minify --target=es2022 \
    --legal-comments=none --log-level=warning --outfile=body.js
cat head.js body.js > "$here/../../service/console/assets/vendor/codemirror.js"
