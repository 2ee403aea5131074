"""All pages, put onto the control plane's app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.http import routing
from lcm.control_plane.web import assets, auth, sign_in
from lcm.control_plane.web.admin import activity_page, settings_page, system_page, templates_page
from lcm.control_plane.web.auth import is_fragment
from lcm.control_plane.web.lablets import create, definitions_page, detail_page, list_page, terminate
from lcm.control_plane.web.rendering import render_fragment, render_toast
from lcm.control_plane.web.workers import actions, dialogs
from lcm.control_plane.web.workers import detail_page as worker
from lcm.control_plane.web.workers import list_page as fleet

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

    from lcm.model.problems import Problem

_LABLET_PAGES = (list_page, create, terminate, detail_page, definitions_page)
_PAGES = (
    sign_in,
    actions,
    dialogs,
    worker,
    fleet,
    *_LABLET_PAGES,
    activity_page,
    system_page,
    settings_page,
    templates_page,
)
ROUTERS = (assets.router, *(each.router for each in _PAGES))


def install(app: FastAPI) -> None:
    """Serve the pages, and tell browsers of errors in a page."""
    auth.install(app)
    app.state.error_page = error_page
    for router in ROUTERS:
        routing.include_routes(app, router)


def error_page(request: Request, problem: Problem) -> Response | None:
    """An error as a page or a toast; None: a program asked, which is told otherwise."""
    if request.url.path.startswith("/api/"):
        return None
    if is_fragment(request):
        return render_toast(problem.detail or problem.title, kind="bad", status=problem.status)
    if "text/html" in request.headers.get("Accept", ""):
        title = "There is no such page" if problem.status == 404 else problem.title
        return render_fragment("error.html", status=problem.status, title=title, detail=problem.detail or "")
    return None
