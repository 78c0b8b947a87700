#!/bin/sh
# Build and push the image of a released version, with a bill of materials and its provenance:
#
#   deploy/release.sh registry.example.org/retally
#
#   tag v0.1.0 ──► git archive: no file that is not committed ──► docker buildx
#      ──► NAME:0.1.0 for each platform, SBOM (SPDX), provenance (SLSA) ──► NAME@sha256:...
#
# PLATFORMS=linux/amd64,linux/arm64 builds for both. A builder of the driver docker-container or
# remote is needed: the default one of an engine cannot attach attestations.
set -eu
name=${1:?"usage: deploy/release.sh REGISTRY/NAME"}
cd "$(dirname "$0")/.."

version=$(git show HEAD:.env | sed -n 's/^RETALLY_VERSION=//p')
commit=$(git rev-parse HEAD)
if [ "$(git rev-parse -q --verify "refs/tags/v$version^{commit}")" != "$commit" ]; then
    echo "release: HEAD is not the tag v$version; check out that tag, or make it" >&2
    exit 1
fi
if docker buildx imagetools inspect "$name:$version" > /dev/null 2>&1; then
    echo "release: $name:$version is there already; a released tag is never replaced" >&2
    exit 1
fi
# Files of the same commit have the same time in each build.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
about=org.opencontainers.image
built=$(mktemp)
committed=$(mktemp)
trap 'rm -f "$built" "$committed"' EXIT
# In a pipe, a failure of git would not stop the script.
git archive --format=tar --output="$committed" HEAD
docker buildx build \
    --platform "${PLATFORMS:-linux/amd64}" \
    --pull --no-cache \
    --sbom=true --provenance=mode=max \
    --label "$about.title=retally" \
    --label "$about.description=exact GROUP BY over change streams, with Spark and Delta" \
    --label "$about.licenses=Apache-2.0" \
    --label "$about.version=$version" \
    --label "$about.revision=$commit" \
    --label "$about.created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
    --output "type=image,name=$name:$version,push=true,rewrite-timestamp=true" \
    --metadata-file "$built" - < "$committed"
digest=$(sed -n 's/.*"containerimage.digest": *"\([^"]*\)".*/\1/p' "$built")
echo "$name:$version@${digest:?"no digest in the answer of buildx"}"
