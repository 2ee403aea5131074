"""External text made safe to store, log and show."""

from __future__ import annotations

import unicodedata


def single_line(text: str, max_length: int) -> str:
    """The text on one line, without control characters, shortened to `max_length`."""
    if not text.isprintable():  # most text is printable and needs no check per character
        text = "".join(" " if unicodedata.category(char).startswith("C") else char for char in text)
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def escape_unprintable(text: str, keep: str = "") -> str:
    """The text with escape sequences for what would move the cursor or forge a line, except characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
