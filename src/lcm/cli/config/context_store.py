"""Saved contexts: control planes and their tokens, in one file that only its owner can read.

The file is `~/.config/lcm/contexts.json`, or under XDG_CONFIG_HOME.
It holds tokens, so others must not be able to read it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_GROUP_AND_OTHERS = 0o077


class ContextStoreError(Exception):
    """The file cannot be used; the message gives the remedy."""


@dataclass(frozen=True, slots=True)
class Context:
    """A control plane, and the token for it. `ends_at` is when the session of a session token ends."""

    name: str
    url: str
    token: str | None = field(default=None, repr=False)
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ContextFile:
    """All contexts by name, and the name of the current one."""

    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    def at(self, url: str) -> Context | None:
        """The context for this address, the current one first. A token is never sent to another address."""
        current = self.contexts.get(self.current or "")
        saved = ([current] if current is not None else []) + list(self.contexts.values())
        return next((context for context in saved if _same_url(context.url, url)), None)


def path() -> Path:
    """The path of the file."""
    base = os.environ.get("XDG_CONFIG_HOME")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".config"
    return folder / "lcm" / "contexts.json"


def load() -> ContextFile:
    """All contexts; none if there is no file."""
    file_path = path()
    try:
        # Check the mode of the open file, not of the path: the file could be replaced in between.
        with file_path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read()
    except FileNotFoundError:
        return ContextFile()
    except OSError as error:
        raise ContextStoreError(f"{file_path} cannot be read: {error.strerror}") from None
    if mode & _GROUP_AND_OTHERS:
        raise ContextStoreError(
            f"{file_path} holds tokens and can be read by others (mode {mode:04o}). Run: chmod 600 {file_path}"
        )
    try:
        return _decode(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ContextStoreError(f"{file_path} is damaged; remove it and sign in again: lcm login URL") from None


def current() -> Context | None:
    """The current context; None if there is none."""
    saved = load()
    return saved.contexts.get(saved.current or "")


def save(name: str, url: str, token: str | None, make_current: bool = True, ends_at: datetime | None = None) -> Context:
    """Add or replace a context."""
    if not _NAME_PATTERN.fullmatch(name):
        raise ContextStoreError(
            f"a context cannot be called {name!r}: letters, digits, dots, dashes and underscores only"
        )
    saved = load()
    context = Context(name, url, token, ends_at)
    selected = name if make_current or saved.current is None else saved.current
    _write(ContextFile({**saved.contexts, name: context}, selected))
    return context


def use(name: str) -> Context:
    """Make a context the current one."""
    saved = load()
    _write(ContextFile(saved.contexts, name))
    return saved.contexts[name]


def forget_token(name: str) -> None:
    """Remove the token of a context; its address stays."""
    saved = load()
    _write(
        ContextFile({**saved.contexts, name: replace(saved.contexts[name], token=None, ends_at=None)}, saved.current)
    )


def remove(name: str) -> None:
    """Remove a context. Its token stays valid until it is revoked."""
    saved = load()
    left = {each: context for each, context in saved.contexts.items() if each != name}
    _write(ContextFile(left, None if saved.current == name else saved.current))


def _same_url(one: str, other: str) -> bool:
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def _decode(content: dict[str, Any]) -> ContextFile:
    contexts = {name: _decode_context(name, entry) for name, entry in content["contexts"].items()}
    return ContextFile(contexts, content.get("current"))


def _decode_context(name: str, entry: dict[str, Any]) -> Context:
    token, ends_at = entry.get("token"), entry.get("ends_at")
    return Context(
        name,
        str(entry["url"]),
        None if token is None else str(token),
        None if ends_at is None else datetime.fromisoformat(ends_at),
    )


def _encode_context(context: Context) -> dict[str, str | None]:
    entry = {"url": context.url, "token": context.token}
    return entry if context.ends_at is None else {**entry, "ends_at": context.ends_at.isoformat()}


def _write(saved: ContextFile) -> None:
    """Replace the file atomically: a concurrent reader sees the old file or the new one."""
    content = {
        "current": saved.current,
        "contexts": {name: _encode_context(each) for name, each in saved.contexts.items()},
    }
    file_path = path()
    draft = file_path.with_name(f".{file_path.name}.{os.getpid()}")
    try:
        file_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        draft.replace(file_path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ContextStoreError(f"{file_path} cannot be written: {error.strerror}") from None
