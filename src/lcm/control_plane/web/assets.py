"""Scripts and styles, read once and served from memory. Their URLs carry a digest, so that browsers may cache them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.responses import Response

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

IMMUTABLE_CACHE = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGEST_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Asset:
    """One file and its media type."""

    path: str
    media_type: str
    body: bytes


class Assets:
    """All files below `static`."""

    def __init__(self) -> None:
        self._by_path: dict[str, Asset] = {}
        self._urls: dict[str, str] = {}
        root = files("lcm.control_plane.web") / "static"
        digest = hashlib.sha256()
        static_files = sorted(_walk(root, ""), key=lambda each: each[0])
        for name, body in static_files:
            digest.update(name.encode() + b"\0" + body + b"\0")
        # One digest for all files: scripts that import each other then always come from the same version.
        self.digest = digest.hexdigest()[:_DIGEST_LENGTH]
        for name, body in static_files:
            path = f"{self.digest}/{name}"
            self._urls[name] = f"/static/{path}"
            self._by_path[path] = Asset(name, _MEDIA_TYPES[name[name.rindex(".") :]], body)

    def url(self, name: str) -> str:
        """The URL of a file such as `app.css`."""
        return self._urls[name]

    def find(self, path: str) -> Asset | None:
        """The file at a path below `/static/`, if there is one."""
        return self._by_path.get(path)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(tuple(_MEDIA_TYPES)):
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


ASSETS = Assets()
router = APIRouter(include_in_schema=False)


@router.get("/static/{path:path}")
async def asset(path: str) -> Response:
    """One file."""
    found = ASSETS.find(path)
    if found is None:
        return Response("There is no such file.", 404, media_type="text/plain")
    return Response(found.body, headers={"Cache-Control": IMMUTABLE_CACHE}, media_type=found.media_type)


@router.get("/favicon.ico")
async def favicon() -> Response:
    """Browsers request this path whatever the page says."""
    found = ASSETS.find(f"{ASSETS.digest}/icon.svg")
    assert found is not None
    return Response(found.body, headers={"Cache-Control": "public, max-age=86400"}, media_type=found.media_type)
