"""Which alerts a subscription is for, in words."""

from __future__ import annotations

from lcm.model.notification.alert import AlertType, Severity
from lcm.model.notification.subscription import AlertFilter, SubjectSelector


def test_the_filters_of_a_subscription_are_said_in_words() -> None:
    assert AlertFilter().describe({}) == "all alerts"
    selector = SubjectSelector(regions=("eu-west-1",), teams=("team-1", "team-2"), tags={"course": "ccna"})
    narrow = AlertFilter(types=(AlertType.WORKER_FAILED,), severity=Severity.CRITICAL, selector=selector)
    assert narrow.describe({"team-1": "blue"}) == (
        "critical alerts: worker failed; only of region eu-west-1, team blue or team-2, tag course=ccna"
    )
