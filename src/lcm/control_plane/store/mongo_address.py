"""What the address of a MongoDB store says. It needs no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from pathlib import Path


def tls_options(url: str, ca_file: Path | None) -> dict[str, Any]:
    """The driver's options for a private CA, if the URL asks for TLS and names no CA itself."""
    given = {name.lower(): value.lower() for name, value in parse_qsl(urlsplit(url).query)}
    default = "true" if url.startswith("mongodb+srv:") else "false"
    uses_tls = given.get("tls", given.get("ssl", default)) == "true"
    return {"tlsCAFile": str(ca_file)} if ca_file is not None and uses_tls and "tlscafile" not in given else {}


def database_name(url: str) -> str:
    """The database name in the URL; `lcm` if there is none."""
    return urlsplit(url).path.strip("/") or "lcm"
