"""Signing in with a browser: a token is exchanged for a cookie that scripts cannot read."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from lcm.control_plane.auth.cookies import cleared_cookie, session_cookie, session_id_in
from lcm.control_plane.auth.links import SECONDS
from lcm.control_plane.http.deps import Anybody, Viewer
from lcm.control_plane.http.pagination import documented
from lcm.control_plane.services import parts
from lcm.core import clock
from lcm.model.access import Role, SignInLink
from lcm.model.base import Answer, Data

router = APIRouter(prefix="/api/session", tags=["access"], responses=documented(401, 403, 422, 429))


class SignIn(Data):
    """What a person signs in with."""

    token: Annotated[SecretStr, Field(min_length=1, max_length=8192)]


class SignedIn(Answer):
    """Who has signed in, and what changes must carry in X-LCM-CSRF."""

    name: str
    role: Role
    csrf: str


@router.post("", status_code=201, response_model=SignedIn)
async def sign_in(request: Request, body: SignIn) -> Response:
    """Exchange a token for a session. The answer has what changes must carry in X-LCM-CSRF."""
    gate = parts(request).gate
    caller = await gate.by_token(request, body.token.get_secret_value())
    session = await gate.sessions.begin(caller)
    secure = request.url.scheme == "https"
    answer = {"name": caller.name, "role": caller.role.value, "csrf": session.csrf.reveal()}
    return JSONResponse(answer, 201, {"Set-Cookie": session_cookie(session, secure=secure)})


@router.post("/links", status_code=201)
async def make_link(request: Request, caller: Viewer) -> SignInLink:
    """A link by which a browser signs in as the caller, once and within ten minutes."""
    path = parts(request).gate.links.address(caller).reveal()
    return SignInLink(path=SecretStr(path), expires_at=clock.now() + timedelta(seconds=SECONDS))


@router.delete("", status_code=204)
async def sign_out(request: Request, caller: Anybody) -> Response:
    """End the session of this cookie."""
    secure = request.url.scheme == "https"
    session_id = session_id_in(request.cookies, secure=secure)
    if session_id is not None:
        await parts(request).gate.sessions.end(session_id)
    return Response(status_code=204, headers={"Set-Cookie": cleared_cookie(secure=secure)})
