"""Saying once that something goes wrong, and once that it works again."""

from __future__ import annotations

import structlog

log = structlog.get_logger(__name__)


class FailureLog:
    """What goes wrong now, by what it is that does. Another kind of failure is another trouble and said again."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}

    def note(self, what: str, error: Exception | None) -> None:
        """How it went this time; None: well."""
        before = self._now.get(what)
        if error is None:
            if before is not None:
                del self._now[what]
                log.info("works again", what=what)
            return
        # The text may differ each time, as with the number of a request; the kind tells one trouble from another.
        kind = self._now[what] = type(error).__name__
        if kind != before:
            log.warning("does not work; trying again", what=what, kind=kind, error=str(error))
