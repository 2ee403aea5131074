"""Keeping a secret out of texts of others: a server may quote what it was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import SecretStr

MASK: Final = "***"
_TELLING: Final = 4


def without_secret(text: str, secret: SecretStr) -> str:
    """The text with the secret masked, also where the text was cut off within it."""
    clear = secret.get_secret_value()
    if not clear:
        return text
    whole = text.replace(clear, MASK)
    body = whole.rstrip("…")
    for length in range(min(len(clear) - 1, len(body)), _TELLING - 1, -1):
        if body.endswith(clear[:length]):
            return body[:-length] + MASK
    return whole
