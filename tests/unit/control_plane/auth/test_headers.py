"""Security headers, as a function and on responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse

from lcm.control_plane.auth.headers import SecurityHeadersMiddleware, security_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def events() -> AsyncIterator[str]:
    yield "data: 1\n\n"


def sample_app() -> FastAPI:
    app = FastAPI()

    @app.get("/api/workers")
    async def workers() -> PlainTextResponse:
        return PlainTextResponse("[]", headers={"Cache-Control": "public, max-age=60", "X-Own": "kept"})

    @app.get("/static/app.js")
    async def script() -> PlainTextResponse:
        return PlainTextResponse("", headers={"Cache-Control": "public, max-age=60"})

    @app.get("/api/events/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(events(), media_type="text/event-stream")

    return app


async def get(path: str, scheme: str = "http") -> httpx.Response:
    transport = httpx.ASGITransport(SecurityHeadersMiddleware(sample_app()))
    async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://lcm.test") as client:
        return await client.get(path)


def test_only_our_own_scripts_run_and_framing_is_forbidden() -> None:
    policy = dict(security_headers("/", secure=False))["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["base-uri"] == "'none'"
    assert "unsafe" not in policy
    assert "*" not in policy


@pytest.mark.parametrize("path", ["/api/workers", "/api/events/stream", "/nowhere"])
async def test_every_response_has_the_headers_and_is_not_cached(path: str) -> None:
    response = await get(path)
    for name, value in security_headers(path, secure=False):
        assert response.headers.get_list(name) == [value]
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "same-origin"


async def test_other_headers_of_the_application_stay() -> None:
    assert (await get("/api/workers")).headers["x-own"] == "kept"
    assert (await get("/static/app.js")).headers["cache-control"] == "public, max-age=60"


async def test_hsts_is_sent_only_over_tls() -> None:
    assert "strict-transport-security" not in (await get("/api/workers")).headers
    assert (await get("/api/workers", "https")).headers["strict-transport-security"] == "max-age=31536000"


async def test_other_protocols_pass_unchanged() -> None:
    seen = []

    async def app(scope: object, receive: object, send: object) -> None:
        seen.append(send)

    async def nothing(*_: object) -> None:
        pass

    await SecurityHeadersMiddleware(app)({"type": "lifespan"}, nothing, nothing)  # type: ignore[arg-type]
    assert seen == [nothing]
