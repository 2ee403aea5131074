"""A skipped test is a failure in CI, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]

SKIPPING = """
import pytest

def test_skips():
    pytest.skip("no server")

@pytest.mark.xfail
def test_is_expected_to_fail():
    assert False
"""


@pytest.mark.parametrize(("ci", "failed", "skipped", "xfailed"), [("true", 2, 0, 0), ("", 0, 1, 1)])
def test_skips_count_as_failures_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, failed: int, skipped: int, xfailed: int
) -> None:
    monkeypatch.setenv("CI", ci)
    pytester.makeconftest(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.conftest import *\n")
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis")
    result.assert_outcomes(failed=failed, skipped=skipped, xfailed=xfailed)
