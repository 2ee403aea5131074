"""The texts and payloads of notifications. Pure functions; no secret is ever part of a record that they read."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.model.notification.alert import ALERT_RULES, Alert, AlertState, AlertType, Severity, SubjectKind

if TYPE_CHECKING:
    from datetime import datetime

_MAX_LINES = 10
_PAGES = {SubjectKind.WORKER: "/workers/{id}", SubjectKind.LABLET: "/lablets/{id}"}
_MARKS = {
    (AlertState.RAISED, Severity.CRITICAL): "🔴",
    (AlertState.RAISED, Severity.WARNING): "🟠",
    (AlertState.RESOLVED, Severity.CRITICAL): "🟢",
    (AlertState.RESOLVED, Severity.WARNING): "🟢",
}


@dataclass(frozen=True, slots=True)
class Notification:
    """One message: an alert, or a digest of several. A repetition has the same id."""

    id: str
    alerts: tuple[Alert, ...]

    @property
    def is_digest(self) -> bool:
        """Whether it carries several alerts."""
        return len(self.alerts) > 1

    @property
    def at(self) -> datetime:
        """When the newest alert happened."""
        return self.alerts[-1].at

    @property
    def summary(self) -> str:
        """It in one line."""
        if not self.is_digest:
            return self.alerts[0].summary
        return f"{len(self.alerts)} alerts: {', '.join(count_lines(self))}"


@dataclass(frozen=True, slots=True)
class Links:
    """Where links lead: to the pages of the control plane, and to the documentation."""

    public_url: str = ""
    docs_url: str = "docs"

    def subject(self, alert: Alert) -> str:
        """The page of what the alert is about. Empty if the address of the control plane is not known."""
        if not self.public_url:
            return ""
        path = _PAGES.get(alert.subject.kind, "/system").format(id=alert.subject.id)
        return f"{self.public_url.rstrip('/')}{path}"

    def runbook(self, alert: Alert) -> str:
        """The paragraph of the documentation that says what to do."""
        anchor = ALERT_RULES[alert.type].runbook if alert.type in ALERT_RULES else "troubleshooting-by-symptom"
        return f"{self.docs_url.rstrip('/')}/operations.md#{anchor}"


def count_lines(notification: Notification) -> list[str]:
    """How many alerts of each type were raised and resolved, the most frequent first."""
    counts = Counter((alert.type, alert.state) for alert in notification.alerts)
    return [
        f"{count} {alert_type.value.replace('_', ' ')} {state.value}"
        for (alert_type, state), count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]


def webhook_body(notification: Notification, links: Links) -> bytes:
    """The body for a webhook: type, timestamp and data, as Standard Webhooks recommends."""
    alerts = [_alert_data(alert, links) for alert in notification.alerts]
    if notification.is_digest:
        data: dict[str, Any] = {"id": notification.id, "summary": notification.summary, "alerts": alerts}
        kind = "digest"
    else:
        data, kind = alerts[0], notification.alerts[0].type.value
    at = notification.at.isoformat().replace("+00:00", "Z")
    return json.dumps({"type": kind, "timestamp": at, "data": data}, separators=(",", ":")).encode()


def _alert_data(alert: Alert, links: Links) -> dict[str, Any]:
    link = links.subject(alert)
    return {
        **alert.model_dump(mode="json"),
        "links": {**({"subject": link} if link else {}), "runbook": links.runbook(alert)},
    }


def message_lines(notification: Notification, links: Links) -> list[str]:
    """It as lines of plain text."""
    if not notification.is_digest:
        alert = notification.alerts[0]
        lines = [alert.summary, *([alert.detail] if alert.detail else []), *_facts(alert)]
        link = links.subject(alert)
        return [*lines, *([f"Page: {link}"] if link else []), f"What to do: {links.runbook(alert)}"]
    lines = [f"{len(notification.alerts)} alerts in one digest", *count_lines(notification)]
    lines += [f"{alert.summary}: {alert.detail}" if alert.detail else alert.summary for alert in _shown(notification)]
    left = len(notification.alerts) - _MAX_LINES
    return [*lines, *([f"and {left} more"] if left > 0 else []), *_digest_links(notification, links)]


def _facts(alert: Alert) -> list[str]:
    region = f", {alert.subject.aws_region}" if alert.subject.aws_region else ""
    return [f"{alert.severity.value}, {alert.state.value} at {alert.at:%Y-%m-%d %H:%M:%S} UTC{region}"]


def _shown(notification: Notification) -> tuple[Alert, ...]:
    return notification.alerts[:_MAX_LINES]


def _digest_links(notification: Notification, links: Links) -> list[str]:
    runbooks = list(dict.fromkeys(links.runbook(alert) for alert in notification.alerts))
    page = [f"Page: {links.public_url.rstrip('/')}/"] if links.public_url else []
    return [*page, *(f"What to do: {runbook}" for runbook in runbooks)]


def _mark(notification: Notification) -> str:
    worst = min(notification.alerts, key=lambda alert: (alert.state is not AlertState.RAISED, alert.severity))
    return _MARKS.get((worst.state, worst.severity), "⚪")


def _title(notification: Notification) -> str:
    return f"{_mark(notification)} {message_lines(notification, Links())[0]}"


def _linked(line: str) -> tuple[str, str] | None:
    """Label and address of a line that is a link."""
    label, separator, address = line.partition(": ")
    return (label, address) if separator and address.startswith(("http://", "https://")) else None


def slack_body(notification: Notification, links: Links) -> bytes:
    """The body for an incoming webhook of Slack: a text for notifications, and blocks."""
    lines = message_lines(notification, links)[1:]
    shown = "\n".join(_slack_line(line) for line in lines)
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": _title(notification)[:150]}},
        {"type": "section", "text": {"type": "mrkdwn", "text": shown[:3000]}},
    ]
    return _json({"text": _slack_escape(_title(notification)), "blocks": blocks})


def _slack_line(line: str) -> str:
    link = _linked(line)
    return f"<{link[1]}|{_slack_escape(link[0])}>" if link else _slack_escape(line)


def _slack_escape(text: str) -> str:
    """Slack reads these three as markup: a name must not become a mention of everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def teams_body(notification: Notification, links: Links) -> bytes:
    """The body for a workflow of Microsoft Teams: a message with one adaptive card."""
    lines = message_lines(notification, links)[1:]
    found = [(line, _linked(line)) for line in lines]
    body = [{"type": "TextBlock", "text": _plain(_title(notification)), "weight": "Bolder", "wrap": True}]
    body += [{"type": "TextBlock", "text": _plain(line), "wrap": True} for line, link in found if link is None]
    actions = [{"type": "Action.OpenUrl", "title": link[0], "url": link[1]} for _, link in found if link is not None]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return _json({"type": "message", "attachments": [attachment]})


def _plain(text: str) -> str:
    """Without the characters that adaptive cards and Webex read as Markdown: a name must not become a link."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]()#<>" else letter for letter in text)


def webex_body(notification: Notification, links: Links) -> bytes:
    """The body for an incoming webhook of Webex."""
    lines = message_lines(notification, links)[1:]
    shown = [f"[{link[0]}]({link[1]})" if link else _plain(line) for line, link in ((x, _linked(x)) for x in lines)]
    markdown = "\n\n".join([f"**{_plain(_title(notification))}**", *shown])
    return _json({"markdown": _cut_bytes(markdown, 7000)})


def _cut_bytes(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def make_test_notification(alert: Alert) -> Notification:
    """The notification of `lcm subscriptions test`."""
    assert alert.type is AlertType.TEST
    return Notification(alert.id, (alert,))
