"""Which control plane is asked, with which token: flags first, then the environment, then the current context."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from lcm.cli.config import context_store
from lcm.cli.errors import CommandError

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE, TOKEN_VARIABLE = "LCM_URL", "LCM_TOKEN"


@dataclass(frozen=True, slots=True)
class Target:
    """An address and what to show there."""

    url: str
    token: str | None = field(repr=False)
    source: str


def resolve_target(server: str | None = None, token_file: str | None = None) -> Target:
    """Where to ask. A token that belongs to one address is not shown to another."""
    told = os.environ.get(URL_VARIABLE) or None
    known = context_store.ContextFile() if (server or told) and token_file else _load_contexts()
    present = known.contexts.get(known.current or "")
    if server:
        url, source = server, "--server"
    elif told:
        url, source = told, URL_VARIABLE
    elif present is not None:
        url, source = present.url, f"context {present.name}"
    else:
        url, source = DEFAULT_URL, "default"
    return Target(url, _resolve_token(url, server, told, token_file, known), source)


def _resolve_token(
    url: str, server: str | None, told: str | None, token_file: str | None, known: context_store.ContextFile
) -> str | None:
    if token_file:
        return read_token(token_file)
    own = os.environ.get(TOKEN_VARIABLE)
    if own and (server is None or told is None or server.rstrip("/") == told.rstrip("/")):
        return own.strip()
    context = known.at(url)
    return None if context is None else context.token


def read_token(path: str) -> str:
    """The token in a file."""
    return read_secret_file("--token-file", path)


def read_secret_file(option: str, path: str) -> str:
    """The one line of a file that an option names."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CommandError(f"{option} {path} cannot be read: {why}") from None
    if not text:
        raise CommandError(f"{option} {path} is empty")
    return text


def _load_contexts() -> context_store.ContextFile:
    try:
        return context_store.load()
    except context_store.ContextStoreError as error:
        raise CommandError(str(error)) from None
