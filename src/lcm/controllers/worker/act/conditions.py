"""Which conditions of a worker have to be written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.core.text import one_line
from lcm.model.worker.conditions import find_condition, with_condition, without_condition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.controllers.worker.decision import WantedCondition
    from lcm.model.worker.conditions import Condition

_LONGEST = 1000


def merged(
    present: tuple[Condition, ...], wanted: Iterable[WantedCondition], now: datetime
) -> tuple[Condition, ...] | None:
    """The conditions after what is wanted; None: nothing that matters differs, so nothing needs to be written.

    A message alone does not matter: it may count minutes, and a fleet at rest writes nothing.
    """
    after, differs = present, False
    for want in wanted:
        known = find_condition(after, want.type)
        if want.status is None:
            if known is not None:
                after, differs = without_condition(after, want.type), True
            continue
        if known is not None and (known.status, known.reason) == (want.status, want.reason):
            continue
        message = one_line(want.message, _LONGEST)
        after = with_condition(after, want.type, want.status, now=now, reason=want.reason, message=message)
        differs = True
    return after if differs else None
