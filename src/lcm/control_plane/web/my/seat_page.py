"""The page that a seat link leads to. Opening it changes nothing; its button opens the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from lcm.control_plane.auth.roles import AccessError
from lcm.control_plane.auth.seats.links import SEAT_PATH
from lcm.control_plane.auth.seats.sessions import SeatEndedError
from lcm.control_plane.auth.session_cookies import seat_cookie, seat_session_id_from
from lcm.control_plane.http.deps import client_address
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import SIGNED_OUT_EVENT, is_fragment
from lcm.control_plane.web.forms import form_field, read_form
from lcm.control_plane.web.my.page import MY_PATH
from lcm.control_plane.web.rendering import render_fragment
from lcm.control_plane.web.sign_in import require_same_origin
from lcm.model.problems import HTTP_STATUS_BY_CODE

if TYPE_CHECKING:
    from fastapi import FastAPI

router = APIRouter(include_in_schema=False)


@router.get(SEAT_PATH)
async def seat_page() -> HTMLResponse:
    """The page with the button. The code of the link is in the fragment, which the browser does not send."""
    return _render()


@router.post(f"{SEAT_PATH}/open")
async def open_seat(request: Request) -> Response:
    """Exchange the code of a link for a session that reaches one lab."""
    form = await read_form(request)
    try:
        require_same_origin(request)
        session = await get_services(request).seat_sessions.open(form_field(form, "code"), client_address(request))
    except AccessError as error:
        return _render(problem=str(error), status=HTTP_STATUS_BY_CODE[error.code])
    cookie = seat_cookie(session, secure=request.url.scheme == "https")
    return RedirectResponse(MY_PATH, 303, {"Set-Cookie": cookie})


@router.post(f"{SEAT_PATH}/leave")
async def leave_seat(request: Request) -> Response:
    """Forget the seat in this browser. The lab goes on, and the link opens it again."""
    secure = request.url.scheme == "https"
    session_id = seat_session_id_from(request.cookies, secure=secure)
    if session_id is not None:
        await get_services(request).seat_sessions.end(session_id)
    return RedirectResponse(SEAT_PATH, 303, {"Set-Cookie": seat_cookie(None, secure=secure)})


def install(app: FastAPI) -> None:
    """Say why to a browser whose seat has ended."""

    @app.exception_handler(SeatEndedError)
    async def show_end(request: Request, error: SeatEndedError) -> Response:
        if is_fragment(request):
            return Response(status_code=401, headers={"HX-Trigger": SIGNED_OUT_EVENT, "HX-Reswap": "none"})
        return _render(ended=str(error) or "Your session has ended. Open your link again.", status=401)


def _render(*, problem: str = "", ended: str = "", status: int = 200) -> HTMLResponse:
    return render_fragment("my/seat.html", status=status, problem=problem, ended=ended)
