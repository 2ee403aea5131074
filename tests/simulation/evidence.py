"""Where the real world was once harsher than our simulators, and what shows that LCM withstands it.

Each row names the mutations that bring the old behaviour back. Scenarios and tests that find them are those of the
mutations. `docs/real-world.md` is made from this table.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What the real world does, and the mutations by which LCM would fail at it."""

    what: str
    mutations: tuple[str, ...]


REAL_WORLD: dict[int, Row] = {
    1: Row(
        "EC2 hides running instances for a moment, some or a whole region",
        (
            "an instance that is missing from one sweep is gone at once",
            "an instance that half a page lacks is gone at once",
            "the only instance of a region is gone as soon as one of many",
            "a sweep that finds too many lost is not counted before they are marked",
        ),
    ),
    2: Row(
        "Capacity or a license does not come for days",
        (
            "whoever waits for too long is not stuck",
            "a license that stays pending is no wait",
            "a license that is not given back is no wait",
            "lablets wait for a worker that is stuck",
        ),
    ),
    3: Row(
        "AWS does not know the caller for a while: credentials have expired, a clock is off",
        (
            "a caller who is not known counts as refused",
            "a call at a time that AWS does not accept counts as refused",
            "a start that nobody could follow fails at its deadline",
        ),
    ),
    4: Row(
        "The metadata service is silent when a controller starts",
        (
            "a client that was made while the metadata service was silent is kept",
            "a leader without credentials seems to be fine",
        ),
    ),
    5: Row("One region swallows requests", ("all regions share the slots for passes",)),
    6: Row("A call that was allowed is sent long after", ("a call is not authorized again when it is sent",)),
    7: Row("CML's list of events grows without end", ("of a long list of events only the beginning is read",)),
    8: Row("A zone does not offer an instance type", ("a type that one zone does not offer is refused for all",)),
    9: Row(
        "The certificate of a CML server changes at its first boot",
        ("a certificate is pinned before CML is ready", "the pin of a certificate is not kept with the worker"),
    ),
    10: Row("etcd is away", ("without etcd the control plane is not ready",)),
    11: Row(
        "Starts find no capacity, again and again",
        ("a start without capacity is recorded before it is accepted, every time",),
    ),
    12: Row("The instance of a failed worker runs on", ("the instance of a failed worker costs nothing",)),
    13: Row("Lablets end by the thousand", ("ended lablets are kept forever",)),
    14: Row(
        "Two versions of the control plane run side by side",
        (
            "an older version erases the fields of a newer one",
            "an older version drops conditions of a newer one",
            "a status of a newer version is an error",
        ),
    ),
    15: Row("An image is published after it was missed", ("that there is no image is cached",)),
    16: Row("CML reports times without a zone", ("times without a zone are read as UTC",)),
    17: Row("A leadership is reset", ("term 0 is accepted",)),
    18: Row("A clock is set back", ("what a clock that was set back measures is dropped",)),
    19: Row(
        "EC2 announces maintenance, or a host fails its status checks",
        ("nobody reads what EC2 announces", "a worker moves to another host while a lablet runs on it"),
    ),
    20: Row(
        "A leader is suspended while its calls wait, and wakes up",
        ("a call is not authorized again when it is sent", "a leader acts after its lease is over"),
    ),
    21: Row(
        "Each read of EC2 leaves out others, for minutes",
        (
            "an instance that is seen in between is gone nevertheless",
            "the control plane does not count losses",
            "the breaker forgets losses at once",
        ),
    ),
    22: Row(
        "etcd is replaced by another one",
        ("an etcd that was replaced is not noticed", "a cluster that was set up again as before is not noticed"),
    ),
    23: Row(
        "The store hangs, or its disk is full",
        ("a store that does not respond is available", "a store that refuses writes is available"),
    ),
    24: Row("A CML refuses our account", ("a CML that refuses our account is ready",)),
    25: Row(
        "Clocks jump",
        (
            "deadlines are measured with the clock of the host",
            "a clock that was set right again is trusted at once",
            "clocks of other processes are not looked at",
            "idle workers are paused by the clock of the control plane",
        ),
    ),
    26: Row("Cisco's command line is used with the CML simulator", ("the CML simulator cannot download a lab",)),
    27: Row("Processes run for weeks", ("what a leader remembers of a worker outlives it",)),
}
"""In the order in which they were found. `make soak` measures what row 27 is about."""
