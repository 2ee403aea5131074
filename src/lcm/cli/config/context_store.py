"""Where the control planes are that a person works with, and the token for each: one file, for its owner alone.

`~/.config/lcm/contexts.json`, or under XDG_CONFIG_HOME. A file that others can read is refused, as tokens stand in it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_GROUP_AND_OTHERS = 0o077


class ContextStoreError(Exception):
    """The file cannot be used; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Context:
    """One control plane, and what to show to it."""

    name: str
    url: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ContextFile:
    """All of them by name, and the name of the one that counts."""

    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    def at(self, url: str) -> Context | None:
        """The context of this address, the current one first: a token is never shown to another address."""
        present = self.contexts.get(self.current or "")
        known = ([present] if present is not None else []) + list(self.contexts.values())
        return next((context for context in known if _same_url(context.url, url)), None)


def path() -> Path:
    """Where the file is."""
    base = os.environ.get("XDG_CONFIG_HOME")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".config"
    return folder / "lcm" / "contexts.json"


def load() -> ContextFile:
    """All contexts; none if there is no file."""
    where = path()
    try:
        # Rights are those of the very file that is read: it cannot be swapped in between.
        with where.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read()
    except FileNotFoundError:
        return ContextFile()
    except OSError as error:
        raise ContextStoreError(f"{where} cannot be read: {error.strerror}") from None
    if mode & _GROUP_AND_OTHERS:
        raise ContextStoreError(
            f"{where} holds tokens and can be read by others (mode {mode:04o}). Run: chmod 600 {where}"
        )
    try:
        return _decode(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ContextStoreError(f"{where} is damaged; remove it and sign in again: lcm login URL") from None


def current() -> Context | None:
    """The context that counts; None if there is none."""
    known = load()
    return known.contexts.get(known.current or "")


def save(name: str, url: str, token: str | None, make_current: bool = True) -> Context:
    """Add or replace a context."""
    if not _NAME_PATTERN.fullmatch(name):
        raise ContextStoreError(
            f"a context cannot be called {name!r}: letters, digits, dots, dashes and underscores only"
        )
    known = load()
    context = Context(name, url, token)
    chosen = name if make_current or known.current is None else known.current
    _write(ContextFile({**known.contexts, name: context}, chosen))
    return context


def use(name: str) -> Context:
    """Make a context the current one."""
    known = load()
    _write(ContextFile(known.contexts, name))
    return known.contexts[name]


def remove(name: str) -> None:
    """Forget a context. Its token stays valid until it is revoked."""
    known = load()
    left = {each: context for each, context in known.contexts.items() if each != name}
    _write(ContextFile(left, None if known.current == name else known.current))


def _same_url(one: str, other: str) -> bool:
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def _decode(content: dict[str, Any]) -> ContextFile:
    contexts = {
        name: Context(name, str(facts["url"]), None if facts.get("token") is None else str(facts["token"]))
        for name, facts in content["contexts"].items()
    }
    return ContextFile(contexts, content.get("current"))


def _write(known: ContextFile) -> None:
    """All at once: whoever reads meanwhile sees the old file or the new one."""
    content = {
        "current": known.current,
        "contexts": {name: {"url": each.url, "token": each.token} for name, each in known.contexts.items()},
    }
    where = path()
    draft = where.with_name(f".{where.name}.{os.getpid()}")
    try:
        where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        draft.replace(where)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ContextStoreError(f"{where} cannot be written: {error.strerror}") from None
