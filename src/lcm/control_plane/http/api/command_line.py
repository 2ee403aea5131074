"""Routes by which a command line signs a person in at the identity provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from pydantic import SecretStr

from lcm.control_plane.auth.oidc.verifier import NoRoleError
from lcm.control_plane.auth.roles import UnauthenticatedError
from lcm.control_plane.auth.session_record import session_token
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import client_address
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.services import get_services
from lcm.model.access import (
    CommandLineSession,
    CommandLineSignIn,
    DeviceSignIn,
    PollSignInRequest,
    RedeemSignInRequest,
    SignInPoll,
)
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.auth.oidc.command_line import CommandLineSignIns
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.sessions import OpenSession

COMMAND_LINE_PATH = "/sign-in/command-line"
"""The page that signs in through a browser beside the command line."""

router = APIRouter(
    prefix="/api/session/command-line", tags=["access"], responses=error_responses(401, 403, 404, 422, 429, 503)
)


@router.post("")
async def start_sign_in(request: Request) -> CommandLineSignIn:
    """Start the sign-in of a command line at the identity provider: with a code, or else through a browser."""
    sign_ins = find_sign_ins(request)
    started = await sign_ins.start(client_address(request))
    browser_url = f"{sign_ins.public_url}{COMMAND_LINE_PATH}"
    if started is None:
        return CommandLineSignIn(browser_url=browser_url)
    device = DeviceSignIn(
        user_code=started.code.user_code,
        verification_uri=started.code.verification_uri,
        verification_uri_complete=started.code.verification_uri_complete,
        interval=started.code.interval,
        expires_in=started.code.lifetime,
        handle=SecretStr(started.handle.reveal()),
    )
    return CommandLineSignIn(device=device, browser_url=browser_url)


@router.post("/poll")
async def poll_sign_in(request: Request, body: PollSignInRequest) -> SignInPoll:
    """Ask whether the person has entered the code. Any control plane of the installation can answer."""
    address, authenticator = client_address(request), get_services(request).authenticator
    try:
        polled = await find_sign_ins(request).poll(body.handle.get_secret_value(), address)
    except NoRoleError as error:
        authenticator.security_log.no_role(error, address)
        raise
    except UnauthenticatedError as error:
        authenticator.security_log.refused(address, None, request.url.path, reason=str(error))
        raise
    if polled.session is None:
        return SignInPoll(slow_down=polled.slow_down)
    caller = await authenticator.in_teams(polled.session.caller)
    if polled.is_new:
        authenticator.security_log.signed_in(caller, address)
    return SignInPoll(session=_describe(polled.session, caller))


@router.post("/redeem")
async def redeem_sign_in(request: Request, body: RedeemSignInRequest) -> CommandLineSession:
    """Exchange the code that a browser brought to the loopback port of the command line."""
    code, verifier = body.code.get_secret_value(), body.code_verifier.get_secret_value()
    authenticator = get_services(request).authenticator
    try:
        session = await find_sign_ins(request).redeem(code, verifier)
    except UnauthenticatedError as error:
        authenticator.security_log.refused(client_address(request), None, request.url.path, reason=str(error))
        raise
    return _describe(session, await authenticator.in_teams(session.caller))


def find_sign_ins(request: Request) -> CommandLineSignIns:
    """The sign-ins of command lines; a problem if no identity provider is configured."""
    found = get_services(request).authenticator.command_line
    if found is None:
        detail = "no identity provider is configured here; an admin must set OIDC_ISSUER and OIDC_CLIENT_ID"
        raise ProblemError(ProblemCode.NOT_FOUND, detail)
    return found


def _describe(session: OpenSession, caller: Caller) -> CommandLineSession:
    """The session; `caller` is its person with the roles in teams, which are in no session."""
    assert caller.expires_at is not None, "sessions of the identity provider end"
    return CommandLineSession(
        token=SecretStr(session_token(session.id.reveal()).reveal()),
        name=caller.name,
        role=caller.role,
        grants=caller.grants,
        expires_at=caller.expires_at,
    )
