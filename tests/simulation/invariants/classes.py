"""Invariants of classes: booked capacity is theirs, seats are ready in time, and nothing is left when they are over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.simulation.invariants.class_capacity import (
    Records,
    earliest_end,
    misfits,
    moment,
    walk_ins,
    will_register,
)
from tests.simulation.invariants.trouble import Trouble

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from tests.simulation.world.loop import SeededLoop

READY_BEFORE = timedelta(minutes=5)
RISK_BEFORE = timedelta(minutes=15)
NOTICE_SECONDS = 60.0
"""Within this time the scheduler, if it and the control plane run, has seen what is due."""
RETRY_SECONDS = (30.0, 120.0, 300.0, 600.0)
"""How long a seat stays failed before each of its retries."""
CLOCKS_APART = timedelta(minutes=3)
"""Clocks of hosts may run two percent too fast or too slow. An end waits until it has passed by each of them."""
CLASSES, WHOLE = "classes", "classes whole in time"
SEATS, READY, LATE = "class seats", "class seats ready in time", "class seats late: "
_ORDER = ("CONFIRMED", "WARMING", "ACTIVE", "ENDED")
_OVER = ("ENDED", "CANCELLED")
_ENDED_SEATS = ("TERMINATED", "EXPIRED")
_GROWING = {"booking_created", "booking_extended", "booking_moved"}


def seats_line(covered: Counter[str]) -> Iterator[str]:
    """How many seats were ready in time, and what explains the others."""
    seats, ready = covered[SEATS], covered[READY]
    if classes := covered[CLASSES]:
        whole = covered[WHOLE]
        yield f"{classes} classes, {whole} of them whole 5 minutes before the start ({100 * whole / classes:.2f} %)"
    if seats:
        late = ", ".join(f"{count} {what[len(LATE) :]}" for what, count in sorted(covered.items()) if LATE in what)
        share = 100 * ready / seats
        yield f"{seats} seats, {ready} of them ready 5 minutes before the start ({share:.2f} %); late: {late or 'none'}"


@dataclass
class ClassBooks:
    """Records bookings, looks at them when they are due, and reports violations."""

    loop: SeededLoop
    violated: Callable[[str], None]
    note: Callable[[str], None]
    covered: Counter[str]
    workers: dict[str, dict[str, Any]]
    lablets: dict[str, dict[str, Any]]
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    teams: dict[str, dict[str, Any]] = field(default_factory=dict)
    scaling: dict[str, Any] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)  # bookings whose confirmation somebody has received
    trouble: Trouble = field(default_factory=Trouble)
    _risks: dict[tuple[str, int], list[tuple[float, str]]] = field(default_factory=dict)
    _awaited: set[tuple[str, int, str, str]] = field(default_factory=set)

    # Writes

    def booking(self, after: dict[str, Any], entries: Sequence[dict[str, Any]]) -> None:
        """Check a write of a booking."""
        before = self.records.get(after["id"])
        self.records[after["id"]] = after
        parts = {each["number"]: each for each in before["occurrences"]} if before else {}
        grows = any(entry["action"] in _GROWING for entry in entries)
        for part in after["occurrences"]:
            self._occurrence(after, parts.get(part["number"]), part)
            if grows and part["status"] not in _OVER:
                self._fits(after, parts.get(part["number"]), part)
            self._wait_for(after, part)

    def worker(self, before: dict[str, Any] | None, after: dict[str, Any], actions: set[str], kinds: set[str]) -> None:
        """Check a write of a worker."""
        if "booked" in actions:
            self._booked(before, after)
            self._licenses(before, after)
        if before is None or not self._is_booked(before) or self.trouble.clocks(self.loop.now):
            return
        stopped = before["desired_status"] == "RUNNING" != after["desired_status"]
        if stopped and "person" not in kinds:
            self.violated(f"{after['name']}: {sorted(actions)} although it is booked until {before['booked_until']}")

    def lablet(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """Check a write of a lablet: one of no booking is not placed on a booked worker, and failed seats go on."""
        self._failed(before, after)
        placed = after["worker_id"] is not None and (before is None or before["worker_id"] != after["worker_id"])
        worker = self.workers.get(after["worker_id"] or "")
        if not placed or worker is None or self.trouble.clocks(self.loop.now):
            return
        if self._is_booked(worker) and worker["booking_id"] != after["booking_id"]:
            self.violated(f"lablet {after['name']} is placed on {worker['name']}, which is booked for others")

    def _failed(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """Nothing but a seat of a class under way goes on after it has failed, and such a seat does, a few times."""
        was_failed, is_failed = before is not None and before["status"] == "FAILED", after["status"] == "FAILED"
        if was_failed and not is_failed:
            self.covered["a failed seat is made anew"] += 1
            if not after["wanted"] or not self._is_under_way(after) or after["retries"] > len(RETRY_SECONDS):
                self.violated(f"lablet {after['name']} is made anew after it has failed: {after}")
        if is_failed and not was_failed and after["wanted"] and after["retries"] < len(RETRY_SECONDS):
            key, wait = (after["id"], after["status_since"]), RETRY_SECONDS[after["retries"]] + NOTICE_SECONDS
            self.loop.call_globally(wait, lambda: self._retry_is_due(*key))

    def _retry_is_due(self, lablet_id: str, since: str) -> None:
        seat = self.lablets[lablet_id]
        if seat["status_since"] != since or not seat["wanted"] or not self._is_under_way(seat):
            return
        has_workers = any(each["booking_id"] == seat["booking_id"] for each in self.workers.values())
        if not has_workers or self.trouble.coordination(self.loop.now) or self.trouble.fleet_is_held(self.loop.now):
            self.loop.call_globally(NOTICE_SECONDS, lambda: self._retry_is_due(lablet_id, since))
            return
        self.violated(f"lablet {seat['name']} has failed since {seat['status_since']} and is not made anew")

    def _is_under_way(self, seat: dict[str, Any]) -> bool:
        if seat["booking_id"] not in self.records:
            return False
        part = self._find(seat["booking_id"], seat["booking_occurrence"])
        return part["status"] in ("WARMING", "ACTIVE") and moment(part["ends_at"]) > self._time

    def _occurrence(self, booking: dict[str, Any], before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        old, new, name = before["status"] if before else "", after["status"], f"{booking['name']} {after['number']}"
        if before is not None and old != new:
            self.covered[f"class {old} {new}"] += 1
            self.note(f"class {name} {old} -> {new}")
            if old in _OVER or (new in _ORDER and _ORDER.index(new) < _ORDER.index(old)):
                self.violated(f"class {name}: {old} became {new}")
        was, risk = before["at_risk"] if before else None, after["at_risk"]
        if risk is not None and (was is None or was["missing"] != risk["missing"]):
            self._risks.setdefault((booking["id"], after["number"]), []).append((self.loop.now, risk["missing"]))
        if (was is None) != (risk is None):
            self.covered["a class is at risk" if risk else "a class is at risk no longer"] += 1
            self.note(f"class {name}: {'at risk: ' + risk['missing'] if risk else 'not at risk'}")

    def _fits(self, booking: dict[str, Any], before: dict[str, Any] | None, part: dict[str, Any]) -> None:
        begin, end = moment(part["warm_up_at"]), moment(part["ends_at"])
        if before is not None and before["warm_up_at"] == part["warm_up_at"]:
            begin = moment(before["ends_at"])  # only what is new
        for said in misfits(self._all(), booking, begin, end):
            self.violated(f"booking {booking['name']} does not fit: {said}")

    def _booked(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        how = "launched" if before is None else "used" if before["desired_status"] == "RUNNING" else "started"
        self.covered[f"a worker is booked and {how}"] += 1
        for each in walk_ins(self._all(), after["id"]):
            if earliest_end(each, self._time) > self._time + timedelta(seconds=NOTICE_SECONDS):
                self.violated(f"{after['name']} is booked under the walk-in {each['name']}")

    def _licenses(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """A class starts or launches no worker for which the pool has no license."""
        pool = self.scaling.get("license_pool_size", 0)
        if not pool or not will_register(after) or (before is not None and will_register(before)):
            return
        self.covered["a class takes a license"] += 1
        others = [each for each in self.workers.values() if each["id"] != after["id"] and will_register(each)]
        if len(others) >= pool:
            self.violated(f"{after['name']} takes a license for a class: the pool has {pool}, and all are taken")

    def _is_booked(self, worker: dict[str, Any]) -> bool:
        return worker["booking_id"] is not None and moment(worker["booked_until"]) > self._time

    # Times

    def _wait_for(self, booking: dict[str, Any], part: dict[str, Any]) -> None:
        """Look at a class when something about it is due. One that was booked after its warm-up has no time."""
        if part["status"] in _OVER:
            return
        start, end = moment(part["starts_at"]), moment(part["ends_at"])
        notice = timedelta(seconds=NOTICE_SECONDS)
        dues: list[tuple[str, datetime, Callable[[str, int, str], None]]] = [
            ("ACTIVE", start + notice, self._begun),
            ("ENDED", end + notice + CLOCKS_APART, self._ended),
        ]
        if moment(booking["updated_at"]) <= moment(part["warm_up_at"]):
            dues += [
                ("risk", start - RISK_BEFORE + notice, self._at_risk),
                ("seats", start - READY_BEFORE, self._seats),
            ]
        for what, due, look in dues:
            stamp = part["ends_at"] if what == "ENDED" else part["starts_at"]
            key = (booking["id"], part["number"], what, stamp)
            if key not in self._awaited:
                self._awaited.add(key)
                self._later((due - self._time).total_seconds(), look, *key[:2], stamp)

    def _later(self, seconds: float, look: Callable[[str, int, str], None], booking: str, number: int, at: str) -> None:
        self.loop.call_globally(max(0.0, seconds), lambda: look(booking, number, at))

    def _begun(self, booking_id: str, number: int, at: str) -> None:
        """A class that should have begun has, as soon as scheduler and control plane work."""
        self._in_time(booking_id, number, at, ("CONFIRMED", "WARMING"), "starts_at", self._begun)

    def _ended(self, booking_id: str, number: int, at: str) -> None:
        self._in_time(booking_id, number, at, ("CONFIRMED", "WARMING", "ACTIVE"), "ends_at", self._ended)

    def _in_time(
        self,
        booking_id: str,
        number: int,
        at: str,
        early: Sequence[str],
        what: str,
        again: Callable[[str, int, str], None],
    ) -> None:
        found = self._find(booking_id, number)
        if found[what] != at or found["status"] not in early:
            return
        if self.trouble.coordination(self.loop.now):
            self._later(NOTICE_SECONDS, again, booking_id, number, at)
            return
        self.violated(f"class {self._label(booking_id, number)} is {found['status']} after {what} {at}")

    def _at_risk(self, booking_id: str, number: int, at: str) -> None:
        """A quarter of an hour before the start, what is missing is said."""
        found = self._find(booking_id, number)
        if found["starts_at"] != at or found["status"] in _OVER or self.trouble.coordination(self.loop.now):
            return
        late = self._missing_seats(booking_id, number)
        if late and found["at_risk"] is None:
            self.violated(f"class {self._label(booking_id, number)} is not at risk, and lacks {len(late)} seats")

    def _seats(self, booking_id: str, number: int, at: str) -> None:
        """Five minutes before the start every seat is ready; if one is not, a fault explains it, and it was said."""
        found = self._find(booking_id, number)
        if found["starts_at"] != at or found["status"] in _OVER:
            return
        seats, late = self.records[booking_id]["seats"], self._missing_seats(booking_id, number)
        self.covered[SEATS] += seats
        self.covered[READY] += seats - len(late)
        self.covered[CLASSES] += 1
        self.covered[WHOLE] += not late
        if not late:
            return
        said = self._risks.get((booking_id, number), [])
        name, reason = self._label(booking_id, number), self.trouble.explanation(self.loop.now, said)
        if reason is None and found["at_risk"] is not None and "have no license" in found["at_risk"]["missing"]:
            reason = "no license"  # new workers get none in this run
        self.note(f"class {name} lacks {late}: {reason}; {found['at_risk']}")
        self.covered[LATE + (reason or "unexplained")] += len(late)
        if reason is None:
            self.violated(
                f"class {name}: {len(late)} of {seats} seats are late, and no fault that AtRisk named explains it"
            )
        elif found["at_risk"] is None and not self.trouble.coordination(self.loop.now):
            self.violated(f"class {name}: {len(late)} of {seats} seats are late, and it is not at risk")

    def _missing_seats(self, booking_id: str, number: int) -> list[str]:
        booking = self.records[booking_id]
        seats = [
            each
            for each in self.lablets.values()
            if each["booking_id"] == booking_id and each["booking_occurrence"] == number
        ]
        missing = [
            f"{each['name']} {each['status']}" for each in seats if each["status"] not in ("RUNNING", *_ENDED_SEATS)
        ]
        return missing + ["no lablet"] * (booking["seats"] - len(seats))

    # At the end

    def complaints(self) -> Iterator[str]:
        """What is left of classes that are over."""
        under_way = set()
        for booking in self.records.values():
            for part in booking["occurrences"]:
                name = f"class {booking['name']} {part['number']}"
                if part["status"] in ("WARMING", "ACTIVE"):
                    under_way.add(booking["id"])
                if part["status"] not in _OVER and moment(part["ends_at"]) <= self._time:
                    yield f"{name} is {part['status']} after its end"
                if part["status"] in _OVER:
                    yield from self._left_over(booking, part, name)
        for worker in self.workers.values():
            if worker["booking_id"] not in (None, *under_way) and worker["status"] != "TERMINATED":
                yield f"{worker['name']} is booked for {worker['booking_id']}, which is over"
        yield from (
            f"booking {each} was confirmed and is lost" for each in sorted(self.confirmed - self.records.keys())
        )

    def _left_over(self, booking: dict[str, Any], part: dict[str, Any], name: str) -> Iterator[str]:
        if part["holds_capacity"]:
            yield f"{name} is {part['status']} and still holds capacity"
        for each in self.lablets.values():
            mine = each["booking_id"] == booking["id"] and each["booking_occurrence"] == part["number"]
            if mine and each["status"] not in (*_ENDED_SEATS, "FAILED"):
                yield f"{name} is {part['status']}, and its seat {each['name']} is {each['status']}"

    @property
    def _time(self) -> datetime:
        return self.loop.wall_time

    def _all(self) -> Records:
        return Records(self.records, self.workers, self.lablets, self.teams, self.scaling)

    def _find(self, booking_id: str, number: int) -> dict[str, Any]:
        return next(each for each in self.records[booking_id]["occurrences"] if each["number"] == number)

    def _label(self, booking_id: str, number: int) -> str:
        return f"{self.records[booking_id]['name']} {number}"
