"""Start, stop and terminate, many instances to a call.

What is asked for within a moment goes out together, and one instance that cannot be changed must not keep the others
from it: EC2 refuses a call as a whole, so a refused one is halved until the culprit stands alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.cloud.aws.rows import state_of
from lcm.cloud.errors import CloudError, OutcomeUnknown, Throttled, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.cloud.aws.gateway import Answer, Gateway
    from lcm.cloud.types import InstanceState

IDS_A_CALL = 100

# Nothing is known of a single instance after these, so there is nothing to halve for.
_OF_THE_WHOLE_CALL = (Throttled, Unreachable, OutcomeUnknown)


@dataclass(slots=True)
class _Wish:
    """One instance to be changed, and those who wait for it."""

    outcome: asyncio.Future[InstanceState] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiting: int = 0


class Mutation:
    """One operation in one region. `answers` is the member of its reply that lists the instances."""

    def __init__(self, gateway: Gateway, operation: str, answers: str) -> None:
        self._gateway = gateway
        self._operation = operation
        self._answers = answers
        self._wishes: dict[str, _Wish] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, instance_id: str) -> InstanceState:
        """The state that the instance is in by the reply. Whoever gives up before it is sent has asked for nothing."""
        wish = self._wishes.setdefault(instance_id, _Wish())
        self._set_timer()
        wish.waiting += 1
        try:
            return await asyncio.shield(wish.outcome)
        finally:
            wish.waiting -= 1

    def _set_timer(self) -> None:
        if len(self._wishes) >= IDS_A_CALL:
            self._send_gathered()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._gateway.tuning.gather_seconds, self._send_gathered)

    def _send_gathered(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wishes, self._wishes = self._wishes, {}
        task = asyncio.get_running_loop().create_task(self._send(wishes))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, wishes: dict[str, _Wish]) -> None:
        try:
            await self._halve(wishes, sorted(wishes))
        finally:
            for instance_id, wish in wishes.items():
                if not wish.outcome.done():
                    lost = OutcomeUnknown(f"{self._operation} of {instance_id}: given up", operation=self._operation)
                    _settle(wish, lost)

    async def _halve(self, wishes: dict[str, _Wish], ids: Sequence[str]) -> None:
        sent: list[str] = []

        def still_wanted() -> dict[str, list[str]] | None:
            sent[:] = [identifier for identifier in ids if wishes[identifier].waiting]
            return {"InstanceIds": sent} if sent else None

        try:
            answer = await self._gateway.call_prepared(self._operation, still_wanted, instances=len(ids))
        except CloudError as error:
            if len(sent) > 1 and not isinstance(error, _OF_THE_WHOLE_CALL):
                middle = len(sent) // 2
                await self._halve(wishes, sent[:middle])
                await self._halve(wishes, sent[middle:])
                return
            for identifier in sent:
                _settle(wishes[identifier], error)
            return
        self._settle_all(wishes, sent, answer or {})

    def _settle_all(self, wishes: dict[str, _Wish], sent: Sequence[str], answer: Answer) -> None:
        states = {
            changed["InstanceId"]: state_of(changed.get("CurrentState", {}).get("Name", ""))
            for changed in answer.get(self._answers, ())
        }
        for identifier in sent:
            silence = OutcomeUnknown(
                f"{self._operation}: the reply says nothing of {identifier}", operation=self._operation
            )
            _settle(wishes[identifier], states.get(identifier, silence))

    async def close(self) -> None:
        """Nothing more is sent; whoever still waits is told so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        for instance_id, wish in self._wishes.items():
            _settle(
                wish, Unreachable(f"{self._operation} of {instance_id}: not sent, closing", operation=self._operation)
            )
        self._wishes.clear()


def _settle(wish: _Wish, outcome: InstanceState | CloudError) -> None:
    if isinstance(outcome, CloudError):
        # Each instance gets an error of its own: a shared one would gather the tracebacks of all.
        wish.outcome.set_exception(type(outcome)(str(outcome), code=outcome.code, operation=outcome.operation))
        wish.outcome.exception()  # looked at: those who gave up waiting do not ask any more
    else:
        wish.outcome.set_result(outcome)
