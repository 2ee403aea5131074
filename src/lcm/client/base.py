"""The base class of the client's resources, and helpers for paths, query strings, headers and bodies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from lcm.client.errors import ProtocolError
from lcm.client.responses import ApiRequest
from lcm.core import clock
from lcm.model.base import Page, share_field_sets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lcm.client.known_records import KnownRecords
    from lcm.client.transport import Transport

D = TypeVar("D", bound=BaseModel)
A = TypeVar("A", bound=BaseModel)

DEFAULT_PAGE_SIZE = 100
"""Decoding larger pages would block the event loop for too long."""
MAX_PAGE_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Leader:
    """A leading controller and its term. Every internal write carries both, so that an older leader is rejected."""

    controller: str
    term: int

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an internal write."""
        return {
            "X-LCM-Controller": self.controller,
            "X-LCM-Leader-Term": str(self.term),
            "X-LCM-Time": clock.now().isoformat(),
            "X-LCM-Earliest-Time": clock.earliest_known().isoformat(),
        }


class Resource:
    """A group of API methods."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _send(self, call: ApiRequest, model: type[A]) -> A:
        return await self._transport.send(call, model)

    async def _pages(
        self,
        operation: str,
        path: str,
        page: type[Page[D]],
        query: dict[str, list[str]],
        size: int,
        known: KnownRecords[D] | None = None,
    ) -> AsyncIterator[D]:
        """All items, page by page. Concurrent changes do not shift the pages."""
        cursor: str | None = None
        while True:
            call = ApiRequest(
                operation, "GET", path, {**query, **query_params(limit=_checked_page_size(size), cursor=cursor)}
            )
            if known is None:
                result = await self._transport.send(call, page)
                items: Iterable[D] = map(share_field_sets, result.items)
            else:
                result = known.decode_page(call, await self._transport.send_raw(call), page)
                items = result.items
            for item in items:
                yield item
            if result.next_cursor is None:
                return
            if result.next_cursor == cursor:
                raise ProtocolError(f"{operation}: the server returned the same cursor twice")
            cursor = result.next_cursor


def encode_body(body: BaseModel) -> bytes:
    """The JSON body of a request: only fields that were set, as null clears a field; secrets in clear text."""
    return json.dumps(_plain_data(body), separators=(",", ":")).encode()


def _plain_data(body: BaseModel) -> dict[str, Any]:
    data = body.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for name in body.model_fields_set:
        value = getattr(body, name)
        if isinstance(value, SecretStr):
            data[name] = value.get_secret_value()
        elif isinstance(value, BaseModel):
            data[name] = _plain_data(value)
    return data


def query_params(**filters: str | int | bool | Iterable[str] | None) -> dict[str, list[str]]:
    """The query parameters without unset filters."""
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
    """A path of the API. Ids and names are quoted, so that they cannot change the path."""
    return "/api/" + "/".join(quote(_checked_path_segment(part), safe="") for part in parts)


def if_match(version: int | None) -> dict[str, str]:
    """The If-Match header: the change applies only to this version."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def bearer_header(token: str) -> dict[str, str]:
    """The Authorization header. An invalid token is rejected here: a later error would quote it."""
    if not token or any(not "!" <= letter <= "~" for letter in token):
        raise ValueError("the token for the control plane must be printable ASCII without spaces")
    return {"Authorization": f"Bearer {token}"}


def new_idempotency_key() -> str:
    """A new Idempotency-Key: a write with a key can be retried when its response is lost."""
    return clock.new_id("key", 24)


def _checked_page_size(size: int) -> int:
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise ValueError(f"page_size: must be between 1 and {MAX_PAGE_SIZE}, not {size}")
    return size


def _checked_path_segment(part: str) -> str:
    # Quoting does not change these, and they would lead to another path.
    if part in ("", ".", ".."):
        raise ValueError(f"an id or name cannot be {part!r}")
    return part
