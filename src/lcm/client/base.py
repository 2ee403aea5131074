"""What the groups of methods share: bodies, query strings, paths, headers and pages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from lcm.client.errors import ProtocolError
from lcm.client.responses import ApiRequest
from lcm.core import clock
from lcm.model.base import LenientModel, share_field_sets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lcm.client.transport import Transport

D = TypeVar("D", bound=BaseModel)
A = TypeVar("A", bound=BaseModel)

DEFAULT_PAGE_SIZE = 100
"""Larger pages keep the event loop busy for too long while they are decoded."""
MAX_PAGE_SIZE = 1000


class Page(LenientModel, Generic[D]):
    """Some of many, and where the next page begins; None at the end."""

    items: tuple[D, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """A leading controller and its term: what every internal write carries, so that an older leader is refused."""

    controller: str
    term: int

    @property
    def headers(self) -> dict[str, str]:
        """The two headers of SPEC §2."""
        return {"X-LCM-Controller": self.controller, "X-LCM-Leader-Term": str(self.term)}


class Resource:
    """Methods around one subject."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _ask(self, call: ApiRequest, answer: type[A]) -> A:
        return await self._transport.ask(call, answer)

    async def _pages(
        self, operation: str, path: str, page: type[Page[D]], query: dict[str, list[str]], size: int
    ) -> AsyncIterator[D]:
        """All items, page by page. What changes meanwhile does not shift the pages."""
        cursor: str | None = None
        while True:
            call = ApiRequest(
                operation, "GET", path, {**query, **query_params(limit=_checked_page_size(size), cursor=cursor)}
            )
            found = await self._transport.ask(call, page)
            for item in found.items:
                yield share_field_sets(item)
            if found.next_cursor is None:
                return
            if found.next_cursor == cursor:
                raise ProtocolError(f"{operation}: the pages go round in circles")
            cursor = found.next_cursor


class InternalResource(Resource):
    """Reads and writes of controllers: a write carries the leader's headers and is sent once."""

    async def _read(self, name: str, answer: type[A], *path: str) -> A:
        return await self._ask(ApiRequest(f"internal.{name}", "GET", api_path("internal", *path)), answer)

    async def _write(self, name: str, leader: Leader, body: BaseModel, answer: type[A], *path: str) -> A:
        call = ApiRequest(
            f"internal.{name}", "POST", api_path("internal", *path), body=encode_body(body), headers=leader.headers
        )
        return await self._ask(call, answer)


def encode_body(body: BaseModel) -> bytes:
    """The body of a request: only fields that were given, as those change and null clears; secrets in clear."""
    data = body.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for name in body.model_fields_set:
        value = getattr(body, name)
        if isinstance(value, SecretStr):
            data[name] = value.get_secret_value()
    return json.dumps(data, separators=(",", ":")).encode()


def query_params(**filters: str | int | bool | Iterable[str] | None) -> dict[str, list[str]]:
    """A query without what was not asked for."""
    query: dict[str, list[str]] = {}
    for name, value in filters.items():
        if isinstance(value, bool):
            query[name] = [str(value).lower()]
        elif isinstance(value, str | int):
            query[name] = [str(value)]
        elif value is not None and (several := [str(each) for each in value]):
            query[name] = several
    return query


def api_path(*parts: str) -> str:
    """A path of the API; what came from outside cannot step out of its place."""
    return "/api/" + "/".join(quote(_checked_path_segment(part), safe="") for part in parts)


def if_match(version: int | None) -> dict[str, str]:
    """The header that lets a change happen only to this version."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def bearer_header(token: str) -> dict[str, str]:
    """The header that shows a token. One that cannot be sent is told here: elsewhere it would be quoted in an error."""
    if not token or any(not "!" <= letter <= "~" for letter in token):
        raise ValueError("the token for the control plane must be printable ASCII without spaces")
    return {"Authorization": f"Bearer {token}"}


def new_idempotency_key() -> str:
    """A new Idempotency-Key: with it a write whose answer was lost can be sent again."""
    return clock.new_id("key", 24)


def _checked_page_size(size: int) -> int:
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise ValueError(f"page_size: must be between 1 and {MAX_PAGE_SIZE}, not {size}")
    return size


def _checked_path_segment(part: str) -> str:
    # These survive quoting, and a dot or nothing at all would be another address.
    if part in ("", ".", ".."):
        raise ValueError(f"an id or name cannot be {part!r}")
    return part
