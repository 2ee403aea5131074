"""Scripts and styles, read once and kept in memory. Their addresses carry a digest: browsers keep them for good."""

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
    """One file as it is served."""

    path: str
    media_type: str
    body: bytes


class Assets:
    """All files below `static`."""

    def __init__(self) -> None:
        self._by_address: dict[str, Asset] = {}
        self._addresses: dict[str, str] = {}
        root = files("lcm.control_plane.web") / "static"
        digest = hashlib.sha256()
        found = sorted(_walk(root, ""), key=lambda each: each[0])
        for name, body in found:
            digest.update(name.encode() + b"\0" + body + b"\0")
        # One digest for all: scripts that import one another then always come from the same version.
        self.digest = digest.hexdigest()[:_DIGEST_LENGTH]
        for name, body in found:
            address = f"{self.digest}/{name}"
            self._addresses[name] = f"/static/{address}"
            self._by_address[address] = Asset(name, _MEDIA_TYPES[name[name.rindex(".") :]], body)

    def address(self, name: str) -> str:
        """Where a file is served, such as `app.css`."""
        return self._addresses[name]

    def find(self, address: str) -> Asset | None:
        """What is served there: nothing but these files."""
        return self._by_address.get(address)

    def script_bytes(self) -> int:
        """How much script there is in all."""
        return sum(len(asset.body) for asset in self._by_address.values() if asset.path.endswith(".js"))


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


@router.get("/static/{address:path}")
async def asset(address: str) -> Response:
    """One file."""
    found = ASSETS.find(address)
    if found is None:
        return Response("There is no such file.", 404, media_type="text/plain")
    return Response(found.body, headers={"Cache-Control": IMMUTABLE_CACHE}, media_type=found.media_type)


@router.get("/favicon.ico")
async def favicon() -> Response:
    """Browsers ask here whatever the page says."""
    found = ASSETS.find(f"{ASSETS.digest}/icon.svg")
    assert found is not None
    return Response(found.body, headers={"Cache-Control": "public, max-age=86400"}, media_type=found.media_type)
