"""Invariants of policies that stop idle workers, whatever the clocks of single hosts show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CLOCK_GRACE = 60.0
"""How much too early a deadline may be: clocks run 2 % fast, and a difference of 30 s between them is none."""


class IdleBooks:
    """Records when workers were started and used, and reports those that a policy stops too early."""

    def __init__(self, violated: Callable[[str], None], now: Callable[[], float]) -> None:
        self._violated = violated
        self._now = now
        self._started: dict[str, float] = {}  # when each became RUNNING, or a user started it after that
        self._used: dict[str, float] = {}  # when a user last worked on an instance
        self._known_use: dict[str, float] = {}  # the same, as far as its events were read since
        # Of the present settings and of those before: they may have been read just before they were changed.
        self._timeouts: list[float] = []
        self._snoozes: list[float] = []

    def settings(self, idle: Mapping[str, float]) -> None:
        """The settings were written."""
        self._timeouts = [*self._timeouts[-1:], 60.0 * idle.get("worker_idle_timeout_minutes", 60.0)]
        self._snoozes = [*self._snoozes[-1:], 60.0 * idle.get("worker_auto_pause_snooze_minutes", 60.0)]

    def used(self, instance_id: str) -> None:
        """A user works on an instance."""
        self._used[instance_id] = self._now()

    def events_read(self, instance_id: str) -> None:
        """The events of an instance are read: what a user did until now is known."""
        if instance_id in self._used:
            self._known_use[instance_id] = self._used[instance_id]

    def worker(self, before: dict[str, Any], after: dict[str, Any], actors: Sequence[dict[str, Any]]) -> None:
        """A worker is written."""
        kinds = {actor["kind"] for actor in actors}
        wish = after["desired_status"] if after["desired_status"] != before["desired_status"] else ""
        # Whatever it was used for, nobody uses it now.
        moves = str(after.get("pause_reason")).startswith(("maintenance", "schedule:"))
        if wish == "STOPPED" and "policy" in kinds and "person" not in kinds and not moves:
            self._stopped_by_policy(before)
        if (after["status"] == "RUNNING" != before["status"]) or (wish == "RUNNING" and "person" in kinds):
            self._started[after["id"]] = self._now()

    def _stopped_by_policy(self, worker: dict[str, Any]) -> None:
        started = self._now() - self._started.get(worker["id"], float("-inf"))
        used = self._known_use.get(worker["instance_id"])
        quiet = started if used is None else self._now() - used
        timeout, snooze = min(self._timeouts, default=0.0), min(self._snoozes, default=0.0)
        if quiet < timeout - CLOCK_GRACE:
            self._violated(f"{worker['id']}: a policy stops it after {quiet:.0f} s without use, not {timeout:.0f}")
        if started < snooze - CLOCK_GRACE:
            self._violated(f"{worker['id']}: a policy stops it {started:.0f} s after its start, not {snooze:.0f}")
