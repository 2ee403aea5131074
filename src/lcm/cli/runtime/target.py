"""Resolves the control plane and its token: flags, then the environment, then the current context."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.cli.config import context_store
from lcm.cli.errors import CommandError

if TYPE_CHECKING:
    from datetime import datetime

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE = "LCM_URL", "LCM_TOKEN", "LCM_CA_FILE"


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a control plane, and the token for it. `session_ends_at` is known for a saved session."""

    url: str
    token: str | None = field(repr=False)
    source: str
    session_ends_at: datetime | None = None


def resolve_target(server: str | None = None, token_file: str | None = None) -> Target:
    """The control plane to use. A token that belongs to one address is never sent to another."""
    from_environment = os.environ.get(URL_VARIABLE) or None
    saved = context_store.ContextFile() if (server or from_environment) and token_file else _load_contexts()
    current = saved.contexts.get(saved.current or "")
    if server:
        url, source = server, "--server"
    elif from_environment:
        url, source = from_environment, URL_VARIABLE
    elif current is not None:
        url, source = current.url, f"context {current.name}"
    else:
        url, source = DEFAULT_URL, "default"
    token = _resolve_token(url, server, from_environment, token_file, saved)
    context = saved.at(url)
    ends_at = context.ends_at if context is not None and context.token == token else None
    return Target(url, token, source, ends_at)


def _resolve_token(
    url: str, server: str | None, url_variable: str | None, token_file: str | None, saved: context_store.ContextFile
) -> str | None:
    if token_file:
        return read_token(token_file)
    own = os.environ.get(TOKEN_VARIABLE)
    if own and (server is None or url_variable is None or server.rstrip("/") == url_variable.rstrip("/")):
        return own.strip()
    context = saved.at(url)
    return None if context is None else context.token


def read_token(path: str) -> str:
    """The token in a file."""
    return read_secret_file("--token-file", path)


def read_secret_file(option: str, path: str) -> str:
    """The single line of a file that an option names."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise CommandError(f"{option} {path} cannot be read: {why}") from None
    if not text:
        raise CommandError(f"{option} {path} is empty")
    return text


def _load_contexts() -> context_store.ContextFile:
    try:
        return context_store.load()
    except context_store.ContextStoreError as error:
        raise CommandError(str(error)) from None
