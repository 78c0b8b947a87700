"""Lets a Java that came in a wheel trust whom this machine trusts.

    the machine's certificate bundle (PEM) ──► lib/security/cacerts (Java's own JKS format)

A distribution's Java does so by itself. Without it, everything behind a company's own certificate
authority, the registry of the jars first of all, is a stranger to that Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

# Where distributions keep the bundle, beside what OpenSSL was told.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PASSWORD = "changeit"  # that of every cacerts; it guards against damage, not against people


def trust_the_machine(runtime: Path) -> None:
    """Replace the trusted certificates of a Java runtime by the machine's, if there are any."""
    bundle = machine_bundle()
    if bundle is not None:
        found = [ssl.PEM_cert_to_DER_cert(each) for each in _PEM.findall(bundle.read_text())]
        (runtime / "lib" / "security" / "cacerts").write_bytes(key_store(found))


def machine_bundle() -> Path | None:
    """Return the file of certificates that programs here trust."""
    named = os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile
    places = [Path(name) for name in (*named, *BUNDLES) if name]
    return next((place for place in places if place.is_file()), None)


def key_store(certificates: Iterable[bytes]) -> bytes:
    """Return a Java key store that holds these certificates (DER) as trusted ones."""
    entries = [
        struct.pack(">I", 2) + _text(f"ca-{number}") + struct.pack(">Q", 0) + _text("X.509")
        + struct.pack(">I", len(each)) + each
        for number, each in enumerate(certificates)
    ]  # fmt: skip
    store = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    return store + digest


def _text(words: str) -> bytes:
    return struct.pack(">H", len(words)) + words.encode()
