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


def evaluate(folder: Path, series: list[str], minutes: int, firing: list[dict[str, str]], alert: str) -> None:
    """Let promtool compare the labels of the alerts that fire after some minutes."""
    inputs = [dict(zip(("series", "values"), each.rsplit("} ", 1), strict=True)) for each in series]
    for each in inputs:
        each["series"] += "}"
    expected = [
        {"labels": "ALERTS" + label_set({"alertname": alert, "alertstate": "firing", **labels}), "value": 1}
        for labels in firing
    ]
    query = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    check = {"expr": query, "eval_time": f"{minutes}m", "exp_samples": expected}
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [check]}
    file = folder / "case.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
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


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_with_its_labels(tmp_path: Path, alert: str) -> None:
    case = CASES[alert]
    labels = {**severity(alert), **case.get("labels", {})}
    evaluate(tmp_path, case["series"], case.get("minutes", 10), [labels], alert)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_silent_while_all_is_well(tmp_path: Path, alert: str) -> None:
    case = CASES[alert]
    evaluate(tmp_path, case["quiet"], case.get("quiet_minutes", case.get("minutes", 10)), [], alert)
