"""The texts and payloads of notifications. Pure functions; no secret is ever part of a record that they read."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.core.text import single_line
from lcm.model.notification.alert import ALERT_RULES, Alert, AlertState, AlertType, Severity, SubjectKind

if TYPE_CHECKING:
    from datetime import datetime

_MAX_LINES = 10
_MAX_DIGEST_LINE = 200
_MAX_ACTIONS = 6
_PAGES = {
    SubjectKind.WORKER: "/workers/{id}",
    SubjectKind.LABLET: "/lablets/{id}",
    SubjectKind.BOOKING: "/bookings/{id}",
}
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
    return json.dumps({"type": kind, "timestamp": at, "data": data}, separators=(",", ":"), ensure_ascii=False).encode()


def _alert_data(alert: Alert, links: Links) -> dict[str, Any]:
    link = links.subject(alert)
    return {
        **alert.model_dump(mode="json"),
        "links": {**({"subject": link} if link else {}), "runbook": links.runbook(alert)},
    }


def message_lines(notification: Notification, links: Links) -> list[str]:
    """It as lines of plain text."""
    return [*_text_lines(notification), *(f"{label}: {address}" for label, address in _link_lines(notification, links))]


def _text_lines(notification: Notification) -> list[str]:
    """The title, and what is below it but links."""
    if not notification.is_digest:
        alert = notification.alerts[0]
        return [alert.summary, *([alert.detail] if alert.detail else []), *_facts(alert)]
    lines = [f"{len(notification.alerts)} alerts in one digest", *count_lines(notification)]
    lines += [_digest_line(alert) for alert in notification.alerts[:_MAX_LINES]]
    left = len(notification.alerts) - _MAX_LINES
    return [*lines, *([f"and {left} more"] if left > 0 else [])]


def _link_lines(notification: Notification, links: Links) -> list[tuple[str, str]]:
    """Labels and addresses: the page of the subject, and what to do. Without NOTIFY_DOCS_URL that is a file."""
    page = links.subject(notification.alerts[0])
    if notification.is_digest:
        page = f"{links.public_url.rstrip('/')}/" if links.public_url else ""
    runbooks = dict.fromkeys(links.runbook(alert) for alert in notification.alerts)
    return [*([("Page", page)] if page else []), *(("What to do", runbook) for runbook in runbooks)]


def _digest_line(alert: Alert) -> str:
    return single_line(f"{alert.summary}: {alert.detail}" if alert.detail else alert.summary, _MAX_DIGEST_LINE)


def _facts(alert: Alert) -> list[str]:
    region = f", {alert.subject.aws_region}" if alert.subject.aws_region else ""
    return [f"{alert.severity.value}, {alert.state.value} at {alert.at:%Y-%m-%d %H:%M:%S} UTC{region}"]


def _mark(notification: Notification) -> str:
    worst = min(notification.alerts, key=lambda alert: (alert.state is not AlertState.RAISED, alert.severity))
    return _MARKS.get((worst.state, worst.severity), "⚪")


def _title(notification: Notification) -> str:
    return f"{_mark(notification)} {_text_lines(notification)[0]}"


def _texts_and_links(notification: Notification, links: Links) -> tuple[list[str], list[tuple[str, str]]]:
    """What is below the title for a chat: lines of text, and what can be followed there."""
    found = _link_lines(notification, links)
    followed = [each for each in found if each[1].startswith(("http://", "https://"))]
    files = [f"{label}: {address}" for label, address in found if (label, address) not in followed]
    return [*_text_lines(notification)[1:], *files], followed


def slack_body(notification: Notification, links: Links) -> bytes:
    """The body for an incoming webhook of Slack: a text for notifications, and blocks."""
    texts, found = _texts_and_links(notification, links)
    shown = ["\n".join(map(_slack_escape, texts)), "\n".join(f"<{url}|{label}>" for label, url in found)]
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": _title(notification)[:150]}}]
    # A section each: a long text is cut, and the links stay whole.
    blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": each[:3000]}} for each in shown if each]
    return _json({"text": _slack_escape(_title(notification)), "blocks": blocks})


def _slack_escape(text: str) -> str:
    """Slack reads these three as markup: a name must not become a mention of everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def teams_body(notification: Notification, links: Links) -> bytes:
    """The body for a workflow of Microsoft Teams: a message with one adaptive card.

    Teams shows six actions of a set and leaves out the others, so further ones get sets of their own.
    """
    texts, found = _texts_and_links(notification, links)
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": _plain(_title(notification)), "weight": "Bolder", "wrap": True}
    ]
    body += [{"type": "TextBlock", "text": _plain(line), "wrap": True} for line in texts]
    actions = [{"type": "Action.OpenUrl", "title": label, "url": url} for label, url in found]
    for begin in range(_MAX_ACTIONS, len(actions), _MAX_ACTIONS):
        body.append({"type": "ActionSet", "actions": actions[begin : begin + _MAX_ACTIONS]})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions[:_MAX_ACTIONS],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return _json({"type": "message", "attachments": [attachment]})


def _plain(text: str) -> str:
    """Without the characters that adaptive cards and Webex read as Markdown: a name must not become a link."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]()#<>" else letter for letter in text)


def webex_body(notification: Notification, links: Links) -> bytes:
    """The body for an incoming webhook of Webex."""
    texts, found = _texts_and_links(notification, links)
    shown = "\n\n".join(f"[{label}]({url})" for label, url in found)
    text = "\n\n".join([f"**{_plain(_title(notification))}**", *map(_plain, texts)])
    return _json({"markdown": "\n\n".join(filter(None, [_cut_bytes(text, 7000 - len(shown.encode())), shown]))})


def _cut_bytes(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def make_test_notification(alert: Alert) -> Notification:
    """The notification of `lcm subscriptions test`."""
    assert alert.type is AlertType.TEST
    return Notification(alert.id, (alert,))
