"""The payloads of chats fit what Slack, Microsoft Teams and Webex document. The schemas have what LCM sends, no more.

Slack: Block Kit (header, section, text object). Teams: an adaptive card of version 1.4 in a message, of which six
actions of a set are shown. Webex: an incoming webhook.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from lcm.control_plane.notifications.messages import Links, Notification, slack_body, teams_body, webex_body
from lcm.model.notification.alert import ALERT_RULES, AlertSubject, AlertType, SubjectKind
from tests.unit.control_plane.notifications.test_messages import LINKS, MANY, ONE, an_alert

if TYPE_CHECKING:
    from collections.abc import Callable

HTTPS = {"type": "string", "pattern": "^https?://"}


def exactly(**fields: Any) -> dict[str, Any]:
    """An object with these fields and no other: an unknown field is refused by some and ignored by others."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def text(longest: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": longest}


SLACK = exactly(
    text=text(4000),
    blocks={
        "type": "array",
        "minItems": 1,
        "maxItems": 50,
        "items": {
            "oneOf": [
                exactly(type={"const": "header"}, text=exactly(type={"const": "plain_text"}, text=text(150))),
                exactly(type={"const": "section"}, text=exactly(type={"const": "mrkdwn"}, text=text(3000))),
            ]
        },
    },
)
ACTION = exactly(type={"const": "Action.OpenUrl"}, title=text(100), url=HTTPS)
TEXT_BLOCK = {
    "type": "object",
    "properties": {
        "type": {"const": "TextBlock"},
        "text": text(20_000),
        "weight": {"enum": ["Default", "Lighter", "Bolder"]},
        "wrap": {"type": "boolean"},
    },
    "required": ["type", "text"],
    "additionalProperties": False,
}
ACTIONS = {"type": "array", "maxItems": 6, "items": ACTION}
CARD = exactly(
    **{"$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"}},
    type={"const": "AdaptiveCard"},
    version={"enum": ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]},
    body={
        "type": "array",
        "minItems": 1,
        "items": {"oneOf": [TEXT_BLOCK, exactly(type={"const": "ActionSet"}, actions=ACTIONS)]},
    },
    actions=ACTIONS,
)
TEAMS = exactly(
    type={"const": "message"},
    attachments={
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": exactly(
            contentType={"const": "application/vnd.microsoft.card.adaptive"}, contentUrl={"type": "null"}, content=CARD
        ),
    },
)
WEBEX = exactly(markdown=text(7439))

EVERY_TYPE = Notification("d", tuple(an_alert(number, type=kind) for number, kind in enumerate(ALERT_RULES)))
CASES = {
    "one": ONE,
    "fifteen": MANY,
    "every type": EVERY_TYPE,
    "long": Notification("d", (an_alert(summary="ä" * 2000, detail="<&>*" * 250),)),
    "without detail": Notification("d", (an_alert(detail=""),)),
    "a booking": Notification("d", (an_alert(subject=AlertSubject(kind=SubjectKind.BOOKING, id="b"), type="x-new"),)),
    "a test": Notification("d", (an_alert(type=AlertType.TEST),)),
}


@pytest.mark.parametrize("links", [LINKS, Links()], ids=["links", "no links"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("make", "schema", "limit"),
    [(slack_body, SLACK, 40_000), (teams_body, TEAMS, 28_000), (webex_body, WEBEX, 40_000)],
    ids=["slack", "teams", "webex"],
)
def test_a_payload_fits_its_schema(
    make: Callable[[Notification, Links], bytes], schema: dict[str, Any], limit: int, case: str, links: Links
) -> None:
    body = make(CASES[case], links)
    problems = [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(json.loads(body))
    ]
    assert problems == []
    assert len(body) <= limit
    if make is webex_body:
        assert len(json.loads(body)["markdown"].encode()) <= 7439


def test_a_schema_refuses_what_it_should() -> None:
    for schema, wrong in (
        (SLACK, {"text": "x", "blocks": [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}]}),
        (SLACK, {"text": "x", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}}]}),
        (TEAMS, {"type": "message", "attachments": []}),
        (WEBEX, {"markdown": "x", "text": None}),
    ):
        assert not jsonschema_rs.Draft202012Validator(schema).is_valid(wrong)
