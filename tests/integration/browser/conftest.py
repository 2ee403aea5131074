"""A real browser for all these tests, control planes for the tests of a file, and a browser context for each test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.servers.chromium import launch
from tests.support.servers.lcm_up import LcmUpProcess
from tests.support.servers.scripted_control_plane import ScriptedControlPlane
from tests.support.web.pages import ARTEFACTS, Visits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Browser

expect.set_options(timeout=90_000)

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # It ends with this folder: the event loop of Playwright would disturb the tests of other folders.
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture
def visits(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visits]:
    name = re.sub(r"[^a-z0-9_-]+", "-", request.node.name.lower()).strip("-")
    opened = Visits(browser, ARTEFACTS / request.node.path.stem.removeprefix("test_") / name.removeprefix("test_"))
    yield opened
    complaints = opened.end(pictures=request.node.stash.get(_FAILED, True))
    assert not complaints, "\n".join(complaints)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedControlPlane]:
    """A control plane without controllers: nothing changes on its own."""
    made = ScriptedControlPlane(tmp_path_factory.mktemp("plane"), NOTIFY_ALLOWED_HOSTS="127.0.0.1").start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LcmUpProcess]:
    """All processes, without the demo fleet: requests of a test are carried out quickly."""
    pace = {"RECONCILE_INTERVAL": "2", "METRICS_COLLECT_INTERVAL": "2"}
    made = LcmUpProcess(tmp_path_factory.mktemp("up"), "up", "--empty", "--speed", "20", **pace).start()
    yield made
    made.process.end()
