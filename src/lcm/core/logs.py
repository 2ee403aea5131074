"""Structured logs: one line per event, as JSON or for a terminal, from structlog and the standard library alike.

JSON lines start with `ts`, `level`, `logger` and `event`, followed by the event's own fields; `exception` holds the
whole traceback in one string. Set uvicorn's `log_config` to None, or it installs handlers of its own.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import structlog
from structlog.processors import ExceptionRenderer, StackInfoRenderer
from structlog.stdlib import ExtraAdder, PositionalArgumentsFormatter, ProcessorFormatter, filter_by_level

from lcm.core import clock
from lcm.core.text import escape_unprintable

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

log = structlog.get_logger(__name__)

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("json", "console", "auto")
MASK = "***"

_SECRET_KEY_PATTERN = re.compile(
    r"passw(or)?d|passphrase|secret|token|authorization|credential|cookie"
    r"|(api|private|access|signing|encryption|ssh)_?key|key_?(material|pem|data)"
)
_LEADING_FIELDS = ("ts", "level", "logger", "event")
_MAX_DEPTH = 8
# They log every request with its address; requests are counted in metrics instead.
_QUIETED_LOGGERS = ("httpx", "httpcore")
_LOGGERS_WITH_HANDLERS = ("uvicorn", "uvicorn.error", "uvicorn.access")

# A single list that never changes: loggers keep the list that they were first used with.
_EVENT_PROCESSORS: list[Processor] = [
    filter_by_level,
    structlog.contextvars.merge_contextvars,
    PositionalArgumentsFormatter(),
    ProcessorFormatter.wrap_for_formatter,
]


class _Handler(logging.StreamHandler[TextIO]):
    """Our handler type, so that reconfiguring replaces only our own handler."""


def configure_logging(level: str, fmt: str, stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` or standard error; `auto` is console on a terminal, else JSON."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: must be one of {', '.join(LEVELS)}")
    if fmt not in FORMATS:
        raise ValueError(f"log format {fmt!r}: must be one of {', '.join(FORMATS)}")
    target = sys.stderr if stream is None else stream
    handler = _Handler(target)
    handler.setFormatter(_make_formatter(fmt, target))
    _install_handler(handler, logging.getLevelNamesMapping()[level.upper()])
    structlog.configure(
        processors=_EVENT_PROCESSORS,
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _install_handler(handler: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _LOGGERS_WITH_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in _QUIETED_LOGGERS:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)


def _make_formatter(fmt: str, stream: TextIO) -> logging.Formatter:
    terminal = stream.isatty()
    console = fmt == "console" or (fmt == "auto" and terminal)
    return ProcessorFormatter(
        foreign_pre_chain=[ExtraAdder(), _drop_duplicate_fields],
        processors=[
            StackInfoRenderer(),
            ExceptionRenderer(),
            _order_fields,
            _mask_secrets,
            *(_console_processors(colors=terminal and _colors_enabled()) if console else (_render_json,)),
        ],
    )


def _colors_enabled() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _drop_duplicate_fields(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Drop what other formatters add to a record, and uvicorn's copy of its message with escape codes."""
    return {key: value for key, value in event.items() if key not in ("message", "asctime", "color_message")}


def _order_fields(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Put the standard fields first and drop the log record."""
    record: logging.LogRecord = event.pop("_record")
    event.pop("_from_structlog")
    head = {
        "ts": clock.now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": str(event.pop("event", "")),
    }
    return head | {f"{key}_" if key in _LEADING_FIELDS else key: value for key, value in event.items()}


def _mask_secrets(_logger: object, _method: str, event: EventDict) -> EventDict:
    """The last line of defense against secrets in logs. It also makes every value serializable as JSON."""
    return {key: _sanitize(value, key) for key, value in event.items()}


def _sanitize(value: Any, key: str = "", depth: int = 0) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if key and _is_secret(key):
        return MASK
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(name): _sanitize(item, str(name), depth + 1) for name, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return _sanitize_items(list(value), depth + 1)
    if depth < _MAX_DEPTH and isinstance(value, set | frozenset):
        return [_sanitize(item, depth=depth + 1) for item in sorted(value, key=_safe_repr)]
    return _safe_repr(value)


def _sanitize_items(items: list[Any], depth: int) -> list[Any]:
    """A (name, value) pair, such as an HTTP header, is masked like an entry of a mapping."""
    if len(items) == 2 and isinstance(items[0], str | bytes):
        name = items[0].decode("latin-1") if isinstance(items[0], bytes) else items[0]
        return [name, _sanitize(items[1], name, depth)]
    return [_sanitize(item, depth=depth) for item in items]


def _is_secret(key: str) -> bool:
    return _SECRET_KEY_PATTERN.search(key.lower().replace("-", "_")) is not None


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a value that cannot be shown must not lose the line
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _render_json(_logger: object, _method: str, event: EventDict) -> str:
    return json.dumps(event)


def _console_processors(*, colors: bool) -> tuple[Processor, Processor]:
    render = structlog.dev.ConsoleRenderer(
        colors=colors,
        timestamp_key="ts",
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )
    return _escape_control_characters, render


def _escape_control_characters(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Escape what would move the cursor or forge a line; tracebacks keep their line breaks."""
    return {
        key: escape_unprintable(value, "\n" if key in ("exception", "stack") else "")
        if isinstance(value, str)
        else value
        for key, value in event.items()
    }


class FailureLog:
    """Logs each failure once when it starts and once when it ends. Another type of error counts as a new failure."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    def note(self, what: str, error: Exception | None) -> None:
        """Record the result of one attempt; None means success."""
        before = self._failing.get(what)
        if error is None:
            if before is not None:
                del self._failing[what]
                log.info("task works again", what=what)
            return
        # The text may differ each time, for example by a request id, so failures are compared by type.
        kind = self._failing[what] = type(error).__name__
        if kind != before:
            log.warning("task failed; retrying", what=what, kind=kind, error=str(error))
