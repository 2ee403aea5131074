"""How a server listens: with or without TLS, and how long it waits for running requests when it stops."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger(__name__)

SHUTDOWN_SECONDS: Final = 5.0
RELOAD_SECONDS: Final = 10.0
"""How often the certificate files are checked for a change."""

_FileState: TypeAlias = "tuple[tuple[int, int, int], ...]"


class CertificateFileError(Exception):
    """The certificate and its key cannot be used."""


class ServerCertificate:
    """The certificate that a server presents. A renewed file is used for new connections, without a restart."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self._seen = self._state()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_into(self.context)

    def reload_if_changed(self) -> bool:
        """Use the files if they have changed and fit together; returns whether they are used.

        Certificate and key are two files, and one is written before the other: until both are there the old ones stay.
        """
        try:
            state = self._state()
            if state == self._seen:
                return False
            # A pair that does not fit must not damage the context that connections use.
            self._load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load_into(self.context)
        except CertificateFileError as error:
            log.warning("changed certificate cannot be used; the former one stays", error=str(error))
            return False
        self._seen = state
        log.info("certificate reloaded", file=str(self._cert_file))
        return True

    def _load_into(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._cert_file, self._key_file)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CertificateFileError(f"{self._cert_file} with {self._key_file}: {reason}") from None

    def _state(self) -> _FileState:
        """What changes when a file is replaced or rewritten."""
        try:
            found = [path.stat() for path in (self._cert_file, self._key_file)]
        except OSError as error:
            raise CertificateFileError(f"{error.filename}: {error.strerror}") from None
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


@dataclass(frozen=True)
class ListenerOptions:
    """What the listeners of a process have in common."""

    certificate: ServerCertificate | None = None
    shutdown_seconds: float = SHUTDOWN_SECONDS
