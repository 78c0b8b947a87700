"""The certificate with which PostgreSQL's clients encrypt their connection."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

log = logging.getLogger(__name__)


class Certificate:
    """A chain of certificates and its key, both PEM; read again when one of the files changes.

    So a renewed certificate needs no restart. While the two do not fit, the old ones stay.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        """Read both; raise OSError (an SSLError is one) if they are no certificate."""
        self._files = (chain, key)
        self._read_at = self._find_changes()
        self._context = self._read()

    @property
    def context(self) -> ssl.SSLContext:
        try:
            changes = self._find_changes()
            if changes != self._read_at:
                self._read_at = changes
                self._context = self._read()
        except OSError as error:
            log.error("the certificate of --pg-tls-cert stays the old one: %s", error)
        return self._context

    def _find_changes(self) -> list[tuple[int, int]]:
        found = [path.stat() for path in self._files]
        return [(each.st_ino, each.st_mtime_ns) for each in found]

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # A key with a password is refused. Without this, OpenSSL would ask at the terminal.
        context.load_cert_chain(*self._files, password="")
        return context
