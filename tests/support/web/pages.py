"""Pages in a browser, watched: what they complain of, whom they ask, how they look and who can use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError

Scheme = Literal["light", "dark"]

ARTEFACTS = ROOT / "tests" / "artefacts"
DESKTOP = (1280, 800)
PHONE = (390, 844)

_AXE = ROOT / "tests" / "integration" / "browser" / "vendor" / "axe.min.js"
_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
_PATIENCE = 20_000.0  # milliseconds; generous, because machines are busy


class World(Protocol):
    """A control plane to look at."""

    @property
    def url(self) -> str:
        """Where it is."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request as admin."""


class Watch:
    """What pages of one origin must not do: complain on the console, fail, or ask another host."""

    def __init__(self, *origins: str) -> None:
        self._origins = tuple(f"{origin}/" for origin in origins)
        self._allowed: list[re.Pattern[str]] = []
        self._seen: list[str] = []

    def allow(self, pattern: str) -> None:
        """From now on and for what was, this may be: a test that provokes a failure names it."""
        self._allowed.append(re.compile(pattern))

    def follow(self, context: BrowserContext) -> None:
        """All pages of a context, from now on."""
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)

    @property
    def complaints(self) -> list[str]:
        """What was seen and nobody allowed."""
        return [seen for seen in self._seen if not any(pattern.search(seen) for pattern in self._allowed)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._seen.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _error(self, error: WebError) -> None:
        self._seen.append(f"page error: {error.error}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((*self._origins, "data:", "blob:")):
            self._seen.append(f"a request to another host: {request.url}")


class Visits:
    """Opens pages for one test: each in a browser context of its own, all watched."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._contexts: list[BrowserContext] = []
        self._watches: list[Watch] = []
        self._tokens: dict[tuple[str, str], str] = {}

    def context(
        self, world: World, *, url: str | None = None, scheme: Scheme = "light", size: tuple[int, int] = DESKTOP
    ) -> tuple[BrowserContext, Watch]:
        """A browser that nobody has signed in with; `url`: where the world is reached, if not directly."""
        place = url or world.url
        context = self._browser.new_context(
            base_url=place,
            color_scheme=scheme,
            viewport={"width": size[0], "height": size[1]},
            has_touch=size == PHONE,
            reduced_motion="reduce",
        )
        context.set_default_timeout(_PATIENCE)
        context.set_default_navigation_timeout(_PATIENCE)
        watch = Watch(place)
        watch.follow(context)
        self._contexts.append(context)
        self._watches.append(watch)
        return context, watch

    def open(
        self,
        world: World,
        path: str = "/",
        *,
        role: str = "admin",
        url: str | None = None,
        scheme: Scheme = "light",
        size: tuple[int, int] = DESKTOP,
    ) -> tuple[Page, Watch]:
        """A page of somebody who has signed in."""
        context, watch = self.context(world, url=url, scheme=scheme, size=size)
        answer = context.request.post("/api/session", data={"token": self.token(world, role)})
        assert answer.status == 201, answer.text()
        page = context.new_page()
        page.goto(path)
        return page, watch

    def token(self, world: World, role: str) -> str:
        """A token of a person with this role, made when it is asked for first."""
        if (world.url, role) not in self._tokens:
            number = len(world.ask("GET", "/api/tokens")["items"])
            made = world.ask("POST", "/api/tokens", {"name": f"{role}-{number}", "role": role})
            self._tokens[world.url, role] = made["token"]
        return self._tokens[world.url, role]

    def end(self) -> list[str]:
        """Keep a picture of every page that is open; says what they have done that they must not."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        pages = [page for context in self._contexts for page in context.pages]
        for number, page in enumerate(pages):
            page.screenshot(path=f"{self._folder}{f'-{number}' if number else ''}.png", animations="disabled")
        for context in self._contexts:
            context.close()
        return [complaint for watch in self._watches for complaint in watch.complaints]


def barriers(page: Page) -> list[str]:
    """What on this page keeps people out, by all of axe's rules of levels A and AA."""
    # Evaluated, not added as an element: the page's own policy would refuse it.
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "levels => axe.run(document, {runOnly: {type: 'tag', values: levels}, resultTypes: ['violations']})", _LEVELS
    )
    assert found["passes"], "axe has checked nothing"
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:160]} {node.get('failureSummary', '')}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]
