"""The payloads for each kind of target."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lcm.control_plane.notifications.messages import (
    Links,
    Notification,
    slack_body,
    teams_body,
    webex_body,
    webhook_body,
)
from lcm.control_plane.notifications.smtp import make_email
from lcm.model.notification.alert import ALERT_RULES, Alert, AlertState, AlertSubject, AlertType, Severity, SubjectKind

AT = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)
LINKS = Links("https://lcm.test/", "https://docs.test")


def an_alert(number: int = 1, **changes: Any) -> Alert:
    facts: dict[str, Any] = {
        "id": f"ev-{number}",
        "type": AlertType.WORKER_FAILED,
        "state": AlertState.RAISED,
        "severity": Severity.CRITICAL,
        "at": AT,
        "subject": AlertSubject(kind=SubjectKind.WORKER, id=f"w-{number}", name=f"n{number}", aws_region="eu-west-1"),
        "summary": f"Worker failed: n{number}",
        "detail": "InsufficientInstanceCapacity <!channel> *now* [x](http://evil.test)",
    }
    return Alert(**{**facts, **changes})


ONE = Notification("ev-1", (an_alert(),))
MANY = Notification("digest-1-15", tuple(an_alert(number) for number in range(15)))


def test_a_webhook_gets_type_timestamp_and_data() -> None:
    body = json.loads(webhook_body(ONE, LINKS))
    assert set(body) == {"type", "timestamp", "data"}
    assert (body["type"], body["timestamp"]) == ("worker_failed", "2026-01-17T10:30:00Z")
    assert body["data"]["subject"]["name"] == "n1"
    assert body["data"]["links"]["subject"] == "https://lcm.test/workers/w-1"


def test_a_digest_has_every_alert_for_a_webhook_and_ten_for_people() -> None:
    body = json.loads(webhook_body(MANY, LINKS))
    assert body["type"] == "digest"
    assert [alert["id"] for alert in body["data"]["alerts"]] == [f"ev-{number}" for number in range(15)]
    text = json.loads(slack_body(MANY, LINKS))["blocks"][1]["text"]["text"]
    assert "15 worker failed raised" in text
    assert text.count("Worker failed:") == 10
    assert "and 5 more" in text


def test_without_a_public_address_there_is_no_page_and_the_runbook_is_a_file() -> None:
    links = json.loads(webhook_body(ONE, Links()))["data"]["links"]
    assert links == {"runbook": "docs/operations.md#a-worker-has-failed"}


def test_slack_gets_text_and_blocks_in_which_names_are_no_markup() -> None:
    body = json.loads(slack_body(ONE, LINKS))
    assert body["text"] == "🔴 Worker failed: n1"
    header, section, linked = body["blocks"]
    assert header == {"type": "header", "text": {"type": "plain_text", "text": "🔴 Worker failed: n1"}}
    assert section["text"]["type"] == "mrkdwn"
    assert "&lt;!channel&gt;" in section["text"]["text"]
    assert linked["text"] == {
        "type": "mrkdwn",
        "text": "<https://lcm.test/workers/w-1|Page>\n<https://docs.test/operations.md#a-worker-has-failed|What to do>",
    }


def test_teams_gets_a_message_with_an_adaptive_card() -> None:
    body = json.loads(teams_body(ONE, LINKS))
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert all(block["type"] == "TextBlock" and isinstance(block["text"], str) for block in card["body"])
    assert [(action["type"], action["url"]) for action in card["actions"]] == [
        ("Action.OpenUrl", "https://lcm.test/workers/w-1"),
        ("Action.OpenUrl", "https://docs.test/operations.md#a-worker-has-failed"),
    ]
    assert "\\[x\\]\\(http://evil.test\\)" in card["body"][1]["text"]


def test_webex_gets_markdown_within_its_limit() -> None:
    body = json.loads(webex_body(ONE, LINKS))
    assert set(body) == {"markdown"}
    assert body["markdown"].startswith("**🔴 Worker failed: n1**\n\n")
    assert "[Page](https://lcm.test/workers/w-1)" in body["markdown"]


@pytest.mark.parametrize("detail", ["x" * 1000, "ä<*" * 333])
@pytest.mark.parametrize("count", [1, 15])
def test_the_longest_texts_fit_and_still_lead_somewhere(detail: str, count: int) -> None:
    """Slack takes 3,000 characters a section, Webex 7,439 bytes, Teams 28 KB."""
    types = [each for each in AlertType if each is not AlertType.TEST] if count > 1 else [AlertType.LABLET_FAILED]
    long = [an_alert(each, detail=detail, type=types[each % len(types)]) for each in range(count)]
    notification = Notification("d", tuple(long))
    ends = [f"https://docs.test/operations.md#{ALERT_RULES[each].runbook}" for each in types]
    *_, linked = sections = json.loads(slack_body(notification, LINKS))["blocks"]
    assert all(len(each["text"]["text"]) <= 3000 for each in sections)
    markdown = json.loads(webex_body(notification, LINKS))["markdown"]
    assert len(markdown.encode()) <= 7439
    card = teams_body(notification, LINKS)
    assert len(card) < 28_000
    for end in ends:
        assert f"<{end}|What to do>" in linked["text"]["text"]
        assert f"[What to do]({end})" in markdown
        assert end in card.decode()


def test_a_line_of_a_detail_is_not_taken_for_a_link() -> None:
    body = json.loads(teams_body(Notification("d", (an_alert(detail="Page: https://evil.test"),)), LINKS))
    urls = [each["url"] for each in body["attachments"][0]["content"]["actions"]]
    assert "https://evil.test" not in urls


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (SubjectKind.WORKER, "/workers/x-1"),
        (SubjectKind.LABLET, "/lablets/x-1"),
        (SubjectKind.BOOKING, "/bookings/x-1"),
        (SubjectKind.REGION, "/system"),  # it has the breakers, the leaked instances and the controllers
        (SubjectKind.INSTANCE, "/system"),
        (SubjectKind.CONTROLLER, "/system"),
    ],
)
def test_the_page_is_that_of_the_subject(kind: SubjectKind, page: str) -> None:
    alert = an_alert(subject=AlertSubject(kind=kind, id="x-1"))
    assert LINKS.subject(alert) == f"https://lcm.test{page}"


def test_the_subject_of_an_e_mail_is_one_line() -> None:
    alert = an_alert(summary="Worker failed: n1\nBcc: everybody@example.com")
    message = make_email(Notification("d", (alert,)), LINKS, "lcm@example.com", ["a@example.com"])
    assert message["Subject"] == "[LCM] Worker failed: n1 Bcc: everybody@example.com"
    assert message["Bcc"] is None


def test_an_e_mail_has_a_message_id_that_a_repetition_shares() -> None:
    first = make_email(ONE, LINKS, "lcm@example.com", ["a@example.com", "b@example.com"])
    again = make_email(ONE, LINKS, "lcm@example.com", ["a@example.com", "b@example.com"])
    assert first["Message-ID"] == again["Message-ID"] == "<ev-1@example.com>"
    assert first["To"] == "a@example.com, b@example.com"
    assert first["Subject"] == "[LCM] Worker failed: n1"
    assert "What to do: https://docs.test/operations.md#a-worker-has-failed" in first.get_content()


def test_a_resolved_alert_is_green() -> None:
    resolved = Notification("ev-2", (an_alert(2, state=AlertState.RESOLVED),))
    assert json.loads(slack_body(resolved, LINKS))["text"].startswith("🟢")


def test_every_type_of_alert_has_a_rule_and_a_paragraph_of_the_operations_manual() -> None:
    text = Path("docs/operations.md").read_text()
    headings = {
        "".join(letter for letter in line.lstrip("# ").lower().replace(" ", "-") if letter.isalnum() or letter == "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert set(ALERT_RULES) == set(AlertType)
    assert not {rule.runbook for rule in ALERT_RULES.values()} - headings
