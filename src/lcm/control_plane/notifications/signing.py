"""Signatures of webhooks as Standard Webhooks defines them: HMAC-SHA256 of id, timestamp and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.secrets.encryption import Secret

_PREFIX = "whsec_"
_KEY_BYTES = 32


def new_signing_secret() -> str:
    """A new signing secret."""
    return _PREFIX + base64.b64encode(clock.rng().randbytes(_KEY_BYTES)).decode()


def signature_headers(notification_id: str, at: datetime, body: bytes, secrets: Sequence[Secret]) -> dict[str, str]:
    """The three headers of a signed message. During a rotation it has a signature for each secret."""
    timestamp = str(int(at.timestamp()))
    content = f"{notification_id}.{timestamp}.".encode() + body
    signatures = [f"v1,{_signature(secret, content)}" for secret in secrets]
    return {
        "webhook-id": notification_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(signatures),
    }


def _signature(secret: Secret, content: bytes) -> str:
    try:
        key = base64.b64decode(secret.reveal().removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("the signing secret is not base64") from None
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
