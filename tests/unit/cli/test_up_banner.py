"""What `lcm up` suggests works on the fleet that it started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.cli.processes import up
from lcm.wiring.up import UpInfo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("demo", "suggested"), [(True, "workers explain alpha"), (False, "workers create NAME --template small")]
)
def test_only_the_demo_has_a_worker_to_explain(
    demo: bool, suggested: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(up, "freeze_startup_objects", lambda: None)
    url = "http://127.0.0.1:8080"
    up.print_up_banner(UpInfo("1.0", url, url, {}, "token", "a file", "simulated", ("us-east-1",), tmp_path, demo))
    shown = capsys.readouterr().out
    assert suggested in shown
    assert ("alpha" in shown) is demo
