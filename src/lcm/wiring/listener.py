"""How the servers of a process listen, from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.http.listener import CertificateFileError, ListenerOptions, ServerCertificate
from lcm.http.server import HttpServer
from lcm.wiring.connections import InvalidSettingsError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lcm.settings import HttpSettings


def listener_options(settings: HttpSettings) -> ListenerOptions:
    """With TLS if a certificate is set."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if cert is None or key is None:
        return ListenerOptions(shutdown_seconds=settings.shutdown_seconds)
    try:
        return ListenerOptions(ServerCertificate(cert, key), settings.shutdown_seconds)
    except CertificateFileError as error:
        raise InvalidSettingsError(f"TLS_CERT_FILE, TLS_KEY_FILE: {error}") from None


def make_http_server(app: FastAPI, settings: HttpSettings, port: int, port_setting: str) -> HttpServer:
    """A server that listens as the settings say. The port is that of the service."""
    return HttpServer(app, settings.bind_host, port, port_setting=port_setting, options=listener_options(settings))
