"""The API reference at /docs is complete, needs no sign-in, and loads nothing from other hosts."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

VOID = {"meta", "link", "img"}


class Outline(HTMLParser):
    """The ids and links of a page, and whether its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids[str(values["id"])] += 1
        if values.get("href"):
            self.links.add(str(values["href"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
async def page(plane: TestPlane) -> str:
    response = await plane.ask("GET", "/docs", role=None)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    return response.text


async def test_every_operation_schema_and_error_code_is_on_the_page(plane: TestPlane, page: str) -> None:
    outline = Outline()
    outline.feed(page)
    document = plane.app.openapi()
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len(operations) > 60
    assert {each["operationId"] for each in operations} <= set(outline.ids)
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= set(outline.ids)
    text = unescape(page)
    assert all(f"<code>{code}</code>" in text for code in ProblemCode)
    assert all(path in text for path in document["paths"])
    assert all(f"<code>{each['name']}</code>" in text for one in operations for each in one.get("parameters", []))


async def test_the_page_is_well_formed_and_its_links_lead_somewhere(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert [name for name, count in outline.ids.items() if count > 1] == []
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)


async def test_nothing_is_loaded_from_other_hosts(plane: TestPlane, page: str) -> None:
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert "<script>" not in page
    assert "<style" not in page
    assert " style=" not in page
    response = await plane.ask("GET", "/docs", role=None)
    assert "script-src 'self'" in response.headers["content-security-policy"]
    for url in re.findall(r'(?:src|href)="(/[^"]*)"', page):
        assert url == "/" or (await plane.ask("GET", url, role=None)).status_code == 200, url
