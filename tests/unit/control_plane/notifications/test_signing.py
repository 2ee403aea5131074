"""Signatures, checked by the library that receivers use."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from lcm.control_plane.notifications.signing import new_signing_secret, signature_headers
from lcm.control_plane.secrets.encryption import Secret

BODY = b'{"type":"worker_failed","data":{"name":"\xc3\xa4lpha"}}'


def verify(secret: str, body: bytes, headers: dict[str, str]) -> object:
    return Webhook(secret).verify(body, headers)


def signed(*secrets: str) -> dict[str, str]:
    # The verifier compares with the real time of the machine.
    return signature_headers("ev-1", datetime.now(UTC), BODY, [Secret(secret) for secret in secrets])


def test_the_official_verifier_accepts_what_is_signed() -> None:
    secret = new_signing_secret()
    assert verify(secret, BODY, signed(secret)) == json.loads(BODY)


def test_during_a_rotation_both_secrets_verify() -> None:
    old, new = new_signing_secret(), new_signing_secret()
    headers = signed(new, old)
    assert verify(old, BODY, headers) == verify(new, BODY, headers) == json.loads(BODY)


@pytest.mark.parametrize("change", ["body", "id", "secret", "time"])
def test_anything_else_is_rejected(change: str) -> None:
    secret = new_signing_secret()
    headers, body = signed(secret), BODY
    if change == "body":
        body = BODY.replace(b"failed", b"fine")
    elif change == "id":
        headers["webhook-id"] = "ev-2"
    elif change == "time":
        headers["webhook-timestamp"] = str(int(headers["webhook-timestamp"]) + 1)
    else:
        secret = new_signing_secret()
    with pytest.raises(WebhookVerificationError):
        verify(secret, body, headers)
