"""A Rich console that shows control characters in texts instead of sending them to the terminal.

Reasons, names and errors come from others: a stored escape sequence could clear the screen, forge lines, or do worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from lcm.core.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterable


class SafeConsole(Console):
    """Escapes whatever is text. The console's own codes, for colours and the cursor, are added after that."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            [
                segment if segment.control else Segment(escape_unprintable(segment.text, "\n\t"), segment.style)
                for segment in buffer
            ]
        )
