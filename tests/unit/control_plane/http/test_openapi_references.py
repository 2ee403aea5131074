"""Every reference in the OpenAPI document leads somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.virtual.control_plane import api_document

if TYPE_CHECKING:
    from collections.abc import Iterator


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def test_every_reference_can_be_resolved() -> None:
    document = api_document()
    found = set(references(document))
    assert "#/components/schemas/ProblemCode" in found
    for reference in found:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            assert part in place, reference
            place = place[part]
