"""The certificate that a simulated server signs for itself, as CML does: it names no host that anybody dials."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lcm.core import clock


@dataclass(frozen=True)
class ServerIdentity:
    """A certificate (PEM) and the TLS context that shows it; servers may share one."""

    pem: str
    context: ssl.SSLContext = field(repr=False)


def make_identity(name: str = "cml-controller") -> ServerIdentity:
    """A new certificate, good for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    began = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(clock.chance().getrandbits(120) + 1)
        .not_valid_before(began - timedelta(days=1))
        .not_valid_after(began + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ServerIdentity(pem.decode(), _context(pem + secret))


def _context(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The standard library reads keys from files only.
    with tempfile.TemporaryDirectory(prefix="lcm-cml-") as folder:
        file = Path(folder) / "server.pem"
        file.touch(mode=0o600)
        file.write_bytes(chain)
        context.load_cert_chain(file)
    return context
