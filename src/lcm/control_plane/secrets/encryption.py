"""Secrets at rest: license tokens and CML passwords are stored only as ciphertext.

AES-256-GCM. A ciphertext names its key and is bound to its location: copied to another record or field, it does not
decrypt. Its format is `lcm1.<key id>.<nonce, ciphertext and tag in base64>`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic_core import core_schema

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.secrets.keys import SecretKey

_VERSION = "lcm1"
_NONCE_BYTES = 12
_TAG_BYTES = 16
_MASK = "***"


class Secret:
    """Text that only `reveal` returns. It is masked when printed, formatted or logged, and cannot be serialized."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_MASK})"

    def __str__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return _MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment]  # a hash would leak information about it

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be serialized")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> core_schema.CoreSchema:
        def check(value: object) -> Secret:
            if isinstance(value, Secret):
                return value
            # Not a ValueError: pydantic would turn it into a message that contains the value.
            raise TypeError("must be a Secret")

        def refuse(_: Secret) -> NoReturn:
            raise TypeError("a secret cannot be serialized")

        serialization = core_schema.plain_serializer_function_ser_schema(refuse, when_used="json")
        return core_schema.no_info_plain_validator_function(check, serialization=serialization)


class DecryptionError(Exception):
    """A ciphertext cannot be read. The message names the key and the remedy, never a secret."""


@dataclass(frozen=True, slots=True)
class SecretLocation:
    """Where a secret is stored: the kind and id of its record, and the field."""

    kind: str
    id: str
    field: str

    def __str__(self) -> str:
        return f"{self.field} of {self.kind} {self.id}"

    def bound(self, key_id: str) -> bytes:
        """The associated data: a JSON list, so that no two locations encode to the same bytes."""
        return json.dumps([_VERSION, key_id, self.kind, self.id, self.field]).encode()


class SecretBox:
    """Encrypts with the first key and decrypts with any key. To rotate, put a new key first."""

    def __init__(self, keys: Sequence[SecretKey]) -> None:
        if not keys:
            raise ValueError("at least one key is needed")
        self._first = keys[0].id
        self._ciphers = {key.id: AESGCM(key.material) for key in keys}

    @property
    def key_id(self) -> str:
        """The id of the encrypting key."""
        return self._first

    def encrypt(self, secret: Secret, location: SecretLocation) -> str:
        """The ciphertext of a secret, valid for this location only."""
        # Random 96-bit nonces: one key may encrypt four billion secrets before a collision matters.
        nonce = clock.rng().randbytes(_NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, secret.reveal().encode(), location.bound(self._first))
        return f"{_VERSION}.{self._first}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"

    def decrypt(self, ciphertext: str, location: SecretLocation) -> Secret:
        """The secret; raises `DecryptionError`."""
        key_id, sealed = _split_ciphertext(ciphertext, location)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise DecryptionError(
                f"{location} was encrypted with the key {key_id}, which is not configured"
                f" (configured: {', '.join(self._ciphers)}). Add that key to LCM_SECRET_KEY_FILE, after the first line,"
                " or enter the secret again."
            )
        try:
            text = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], location.bound(key_id))
        except InvalidTag:
            raise DecryptionError(
                f"{location} was altered or moved since it was encrypted with the key {key_id}. Enter the secret again."
            ) from None
        return Secret(text.decode())

    def needs_rotation(self, ciphertext: str) -> bool:
        """Whether a ciphertext was encrypted with a key other than the first."""
        return not ciphertext.startswith(f"{_VERSION}.{self._first}.")

    def rotate(self, ciphertext: str, location: SecretLocation) -> str:
        """The same secret, encrypted with the first key; raises `DecryptionError`."""
        return self.encrypt(self.decrypt(ciphertext, location), location)


def _split_ciphertext(ciphertext: str, location: SecretLocation) -> tuple[str, bytes]:
    try:
        version, key_id, encoded = ciphertext.split(".")
        sealed = base64.b64decode(encoded, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        version, key_id, sealed = "", "", b""
    if version != _VERSION or len(sealed) < _NONCE_BYTES + _TAG_BYTES:
        raise DecryptionError(f"{location} is not a ciphertext of this version. Enter the secret again.")
    return key_id, sealed
