"""The settings of an etcd connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TLS_BY_SCHEME = {"http://": False, "https://": True}
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """One endpoint: `text` is `host:port` as written in the settings."""

    text: str
    tls: bool


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """Settings of one etcd cluster.

    An endpoint is `host:port`, with a name, an IPv4 address or an IPv6 address in brackets. The prefix `https://`
    selects TLS and `http://` plain text; without a prefix, TLS is used if a certificate or CA is configured.
    """

    endpoints: tuple[str, ...]
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    call_timeout: float = 3.0
    liveness_interval: float = 3.0

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("etcd endpoints: give at least one host:port")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("etcd client certificate: give both the certificate and the key file, or neither")
        if (self.user is None) != (self.password is None):
            raise ValueError("etcd sign-in: give both user and password, or neither")
        if self.call_timeout <= 0 or self.liveness_interval <= 0:
            raise ValueError("etcd call_timeout and liveness_interval must be above 0 seconds")
        if len(set(self.addresses)) != len(self.endpoints):
            raise ValueError(f"etcd endpoints: one is named twice in {', '.join(self.endpoints)}")

    @property
    def addresses(self) -> tuple[EndpointAddress, ...]:
        """The validated endpoints."""
        return tuple(self._address(endpoint) for endpoint in self.endpoints)

    @property
    def max_call_seconds(self) -> float:
        """The bound of every call, whatever the network does; a list takes up to this for each page."""
        return 2 * self.call_timeout

    def _address(self, endpoint: str) -> EndpointAddress:
        tls = self.ca_file is not None or self.cert_file is not None
        text = endpoint.strip()
        for scheme, wants_tls in _TLS_BY_SCHEME.items():
            if text.startswith(scheme):
                text, tls = text.removeprefix(scheme).removesuffix("/"), wants_tls
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        bracketed = bare != host
        if not bare or set(bare) & set("/@[] ,") or (":" in bare) != bracketed:
            raise ValueError(f"etcd endpoint {endpoint!r}: expected host:port, with an IPv6 address in brackets")
        if not (port.isascii() and port.isdigit() and 1 <= int(port) <= _MAX_PORT):
            raise ValueError(f"etcd endpoint {endpoint!r}: the port must be a number from 1 to {_MAX_PORT}")
        return EndpointAddress(f"{host}:{int(port)}", tls)
