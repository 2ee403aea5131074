"""Pages from templates. Everything that comes from records is escaped; only our own markup is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lcm.control_plane.services import get_services
from lcm.control_plane.web.assets import ASSETS
from lcm.control_plane.web.auth import is_fragment
from lcm.core import clock
from lcm.model.formatting import humanize_duration

if TYPE_CHECKING:
    from fastapi import Request

    from lcm.control_plane.web.auth import WebUser

NAVIGATION = (
    ("fleet", "Fleet", "/"),
    ("lablets", "Lablets", "/lablets"),
    ("templates", "Templates", "/templates"),
    ("activity", "Activity", "/activity"),
    ("system", "System", "/system"),
    ("settings", "Settings", "/settings"),
)
"""The pages that are linked from everywhere: id, title, address."""
PLACEHOLDER = "\N{EN DASH}"
DONE_EVENT = "lcm:done"
"""The event by which scripts hear that a change was made."""


def time_tag(moment: datetime | None, otherwise: str = PLACEHOLDER) -> Markup:
    """How long ago or ahead, with the exact time when pointed at; scripts keep it going."""
    if moment is None:
        return Markup("<span class=muted>{}</span>").format(otherwise)
    now = clock.now()
    words = f"{humanize_duration(now - moment)} ago" if moment <= now else f"in {humanize_duration(moment - now)}"
    exact = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.astimezone(UTC).isoformat(), exact, words)


def usd(amount: float | None, digits: int = 2) -> str:
    """`$3.96`; a dash where there is none. Small prices keep the digits that matter."""
    if amount is None:
        return PLACEHOLDER
    shown = digits if amount == 0 or abs(amount) >= 1 else max(digits, 4)
    return f"${amount:,.{shown}f}"


def dollars(amount: float) -> str:
    """A sum, to the cent."""
    return f"${amount:,.2f}"


def number(amount: float | None, digits: int = 0) -> str:
    """`12,345`."""
    return PLACEHOLDER if amount is None else f"{amount:,.{digits}f}"


def as_json(value: Any) -> str:
    """For a data attribute; the template escapes it."""
    return json.dumps(value, separators=(",", ":"), default=str)


def sparkline(points: list[float] | None, width: int = 96, height: int = 24) -> Markup:
    """A little line of shares between 0 and 100, newest at the right."""
    if not points:
        return Markup('<span class="muted">{}</span>').format(PLACEHOLDER)
    step = width / max(1, len(points) - 1)
    line = " ".join(
        f"{index * step:.1f},{height - 1 - min(100.0, max(0.0, point)) / 100 * (height - 2):.1f}"
        for index, point in enumerate(points)
    )
    label = f"CPU load, now {points[-1]:.0f} percent, at most {max(points):.0f} percent"
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{label}">'
        '<polyline points="{line}"/></svg>'
    ).format(w=width, h=height, label=label, line=line)


@lru_cache(maxsize=1)
def template_environment() -> Environment:
    """Made once: compiled templates are kept."""
    made = Environment(
        loader=PackageLoader("lcm.control_plane.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "time": time_tag,
        "usd": usd,
        "dollars": dollars,
        "number": number,
        "json": as_json,
        "spark": sparkline,
        "e": escape,
    }
    made.globals |= {"static": ASSETS.address, "navigation": NAVIGATION}
    return made


def render_fragment(
    template: str, *, status: int = 200, headers: dict[str, str] | None = None, **values: Any
) -> HTMLResponse:
    """A part of a page."""
    text = template_environment().get_template(template).render(now=clock.now(), **values)
    return HTMLResponse(text, status, headers)


async def render_page(
    request: Request,
    who: WebUser,
    template: str,
    *,
    here: str,
    title: str,
    status: int = 200,
    **values: Any,
) -> HTMLResponse:
    """A whole page with its frame: who is signed in, whether the fleet is held, what is wrong."""
    summary = None if is_fragment(request) else await get_services(request).fleet.summary()
    text = (
        template_environment()
        .get_template(template)
        .render(now=clock.now(), here=here, title=title, who=who, summary=summary, **values)
    )
    return HTMLResponse(text, status)


async def render_not_found(request: Request, who: WebUser, *, here: str, noun: str, record_id: str) -> HTMLResponse:
    """The page of a record that does not exist, which says so."""
    return await render_page(
        request, who, "not_found.html", here=here, title=f"No such {noun}", status=404, noun=noun, record_id=record_id
    )


def render_toast(message: str, *, kind: str = "good", status: int = 200, triggers: str = "") -> HTMLResponse:
    """A short word at the edge of the page. `triggers` are events that scripts hear of, such as `lcm:done`."""
    headers = {"HX-Trigger": triggers} if triggers else None
    return render_fragment("shared/_toast.html", status=status, headers=headers, kind=kind, message=message)
