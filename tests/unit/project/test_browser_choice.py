"""Which browser is installed for tests: the headless shell, and where it cannot be had, any Chromium."""

from __future__ import annotations

import pytest

from tests.support.servers import chromium
from tools.debian_packages import PackageMissingError


class Host:
    """Programs that are there, and packages that can be installed."""

    def __init__(self, programs: set[str], packages: set[str]) -> None:
        self.programs, self.packages = programs, packages
        self.asked_for: list[str] = []

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

    def install(self, package: str, program: str) -> None:
        self.asked_for.append(package)
        if package not in self.packages:
            raise PackageMissingError(f"no {program}")
        self.programs.add(package)


@pytest.mark.parametrize(
    ("programs", "packages", "asked_for", "used"),
    [
        ({"chromium-headless-shell"}, set(), [], "chromium-headless-shell"),
        (set(), {"chromium-headless-shell"}, ["chromium-headless-shell"], "chromium-headless-shell"),
        ({"google-chrome"}, set(), ["chromium-headless-shell"], "google-chrome"),
        (set(), {"chromium"}, ["chromium-headless-shell", "chromium"], "chromium"),
        (set(), set(), ["chromium-headless-shell", "chromium"], None),
    ],
    ids=["there", "installed", "another-is-there", "not-packaged", "none"],
)
def test_the_headless_shell_is_preferred(
    monkeypatch: pytest.MonkeyPatch, programs: set[str], packages: set[str], asked_for: list[str], used: str | None
) -> None:
    host = Host(set(programs), packages)
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr("tests.support.servers.chromium.shutil.which", host.which)
    monkeypatch.setattr(chromium, "install", host.install)
    assert chromium.main() == (0 if used else 1)
    assert host.asked_for == asked_for
    assert chromium.find_chromium() == (f"/usr/bin/{used}" if used else None)


def test_a_chosen_browser_is_used_and_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host({"chromium-headless-shell", "mine"}, set())
    monkeypatch.setenv("CHROMIUM", "mine")
    monkeypatch.setattr("tests.support.servers.chromium.shutil.which", host.which)
    monkeypatch.setattr(chromium, "install", host.install)
    assert chromium.main() == 0
    assert host.asked_for == []
    assert chromium.find_chromium() == "/usr/bin/mine"
