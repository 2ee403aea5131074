"""The API reference at /docs, rendered from the OpenAPI document. Like the document it needs no sign-in.

The usual viewers load scripts and styles from other hosts, which our content security policy forbids.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from lcm.control_plane.web.rendering import template_environment
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from fastapi import FastAPI

PATH = "/docs"
_CODE = re.compile(r"`([^`]+)`")

router = APIRouter(include_in_schema=False)


@router.get(PATH)
async def api_reference(request: Request) -> HTMLResponse:
    """Every operation, schema and error code of the API."""
    return HTMLResponse(_render(request.app))


@lru_cache(maxsize=1)
def _render(app: FastAPI) -> str:
    """The page is the same for every request, so it is rendered once."""
    document = app.openapi()
    return (
        template_environment()
        .get_template("docs/api.html")
        .render(
            info=document["info"],
            tags=_operations_by_tag(document),
            schemas=sorted(document["components"]["schemas"].items()),
            security=document["components"]["securitySchemes"],
            error_codes=[(code.value, HTTP_STATUS_BY_CODE.get(code, 409)) for code in ProblemCode],
            paragraphs=_paragraphs,
            pretty=_pretty,
        )
    )


def _operations_by_tag(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            entry = {**operation, "method": method.upper(), "path": path}
            tags.setdefault((operation.get("tags") or ["service"])[0], []).append(entry)
    return tags


def _paragraphs(text: str) -> Markup:
    """Plain text with `code` as paragraphs."""
    return Markup().join(
        Markup("<p>{}</p>").format(Markup(_CODE.sub(r"<code>\1</code>", str(escape(part)))))  # noqa: S704 - escaped
        for part in re.split(r"\n\s*\n", text.strip())
        if part
    )


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
