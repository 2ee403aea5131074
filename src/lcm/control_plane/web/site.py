"""All pages, put onto the control plane's app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.routes import switchboard
from lcm.control_plane.web import assets, visitors
from lcm.control_plane.web.pages import (
    acting,
    activity,
    definitions,
    fleet,
    lablet,
    lablet_ending,
    lablet_making,
    lablets,
    settings,
    signing_in,
    system,
    templates,
    worker,
    worker_editing,
)
from lcm.control_plane.web.rendering import fragment, toast
from lcm.control_plane.web.visitors import is_fragment

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

    from lcm.model.problems import Problem

_OF_LABLETS = (lablets, lablet_making, lablet_ending, lablet, definitions)
_PAGES = (signing_in, acting, worker_editing, worker, fleet, *_OF_LABLETS, activity, system, settings, templates)
ROUTERS = (assets.router, *(each.router for each in _PAGES))


def install(app: FastAPI) -> None:
    """Serve the pages, and tell browsers of errors in a page."""
    visitors.install(app)
    app.state.error_page = error_page
    for router in ROUTERS:
        switchboard.include(app, router)


def error_page(request: Request, problem: Problem) -> Response | None:
    """An error as a page or a toast; None: a program asked, which is told otherwise."""
    if request.url.path.startswith("/api/"):
        return None
    if is_fragment(request):
        return toast(problem.detail or problem.title, kind="bad", status=problem.status)
    if "text/html" in request.headers.get("Accept", ""):
        title = "There is no such page" if problem.status == 404 else problem.title
        return fragment("error.html", status=problem.status, title=title, detail=problem.detail or "")
    return None
