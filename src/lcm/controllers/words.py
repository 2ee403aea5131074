"""Text from outside, made fit to be stored and shown."""

from __future__ import annotations

import unicodedata


def one_line(text: str, longest: int) -> str:
    """Without control characters, on one line, and not too long."""
    plain = "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in text)
    plain = " ".join(plain.split())
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
