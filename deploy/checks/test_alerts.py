"""Every alert fires when it should and is silent when it should be: promtool evaluates the rules on made-up series."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.checks.conftest import DEPLOY, program

if TYPE_CHECKING:
    from pathlib import Path

RULES = DEPLOY / "prometheus-alerts.yml"
CASES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "checks" / "alert_cases.yml").read_text())
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> None:
    run = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def evaluation(series: list[str], minutes: int, firing: list[dict[str, str]], alert: str) -> dict[str, Any]:
    """A test of promtool that compares the labels of the alerts that fire after some minutes."""
    inputs = [dict(zip(("series", "values"), each.rsplit("} ", 1), strict=True)) for each in series]
    for each in inputs:
        each["series"] += "}"
    expected = [
        {"labels": "ALERTS" + label_set({"alertname": alert, "alertstate": "firing", **labels}), "value": 1}
        for labels in firing
    ]
    query = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    check = {"expr": query, "eval_time": f"{minutes}m", "exp_samples": expected}
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": [check]}


def evaluate(folder: Path, tests: list[dict[str, Any]]) -> None:
    """Let promtool make all tests in one run, which takes a second. It names those that fail."""
    file = folder / "cases.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def label_set(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def severity(alert: str) -> dict[str, str]:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    (labels,) = [rule["labels"] for rule in rules if rule["alert"] == alert]
    return dict(labels)


def test_the_rules_are_valid_and_each_has_a_case() -> None:
    promtool("check", "rules", str(RULES))
    assert sorted(ALERTS) == sorted(CASES)


def test_each_alert_fires_with_its_labels(tmp_path: Path) -> None:
    cases = {alert: CASES[alert] for alert in ALERTS}
    labels = {alert: {**severity(alert), **case.get("labels", {})} for alert, case in cases.items()}
    evaluate(
        tmp_path,
        [
            evaluation(series, case.get("minutes", 10), [labels[alert]], alert)
            for alert, case in cases.items()
            for series in (case["series"], *([case["or_series"]] if "or_series" in case else []))
        ],
    )


def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    evaluate(
        tmp_path,
        [
            evaluation(case["quiet"], case.get("quiet_minutes", case.get("minutes", 10)), [], alert)
            for alert, case in CASES.items()
        ],
    )


def test_a_case_that_does_not_fire_is_found(tmp_path: Path) -> None:
    well, labels = CASES["LcmBreakerOpen"]["quiet"], {**severity("LcmBreakerOpen"), "region": "eu-west-1"}
    with pytest.raises(AssertionError, match="LcmBreakerOpen"):
        evaluate(tmp_path, [evaluation(well, 10, [labels], "LcmBreakerOpen")])
