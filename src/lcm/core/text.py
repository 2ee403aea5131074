"""Text from outside, made fit to be stored and shown."""

from __future__ import annotations

import unicodedata


def single_line(text: str, longest: int) -> str:
    """Without control characters, on one line, and not too long."""
    if not text.isprintable():  # most text is, and need not be looked at letter by letter
        text = "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in text)
    plain = " ".join(text.split())
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
