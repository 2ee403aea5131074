"""Idempotent requests: the answer to a key is kept in the same commit as what was done, and given again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import IDEMPOTENT_RESPONSES
from lcm.control_plane.store.port import Delete, Put, RevisionConflictError, Where
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.control_plane.store.port import Store
    from lcm.model.audit import Actor

RESPONSE_TTL = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An Idempotency-Key as one caller gave it with one request."""

    caller: str
    key: str
    request: bytes  # method, path and body: the same key with another request is a mistake

    @property
    def id(self) -> str:
        """Where its answer is kept."""
        return hashlib.sha256(f"{self.caller}\0{self.key}".encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """What the request was, without keeping it: it may hold a secret."""
        return hashlib.sha256(self.request).hexdigest()


async def find_response(change: Transaction, key: IdempotencyKey | None) -> bytes | None:
    """The answer that was given to this key before; refused if it was another request."""
    stored = None if key is None else await change.store.get(IDEMPOTENT_RESPONSES, key.id)
    if key is None or stored is None:
        return None
    kept = json.loads(stored.body)
    if kept["request"] != key.fingerprint:
        detail = "this Idempotency-Key was used with another request; use a new one"
        raise ProblemError(ProblemCode.IDEMPOTENCY_MISMATCH, detail)
    return str(kept["answer"]).encode()


async def delete_expired_responses(store: Store, now: datetime) -> int:
    """Forget answers that nobody will ask for again, in small portions; says how many."""
    old, gone = Where(below={"at": (now - RESPONSE_TTL).isoformat()}), 0
    while items := (await store.find(IDEMPOTENT_RESPONSES, old, limit=500)).items:
        try:
            await store.commit([Delete(IDEMPOTENT_RESPONSES, item.id, item.revision) for item in items])
        except RevisionConflictError:
            break  # another control plane is at it too
        gone += len(items)
    return gone


async def run_idempotent(
    records: UnitOfWork,
    actor: Actor,
    key: IdempotencyKey | None,
    attempt: Callable[[Transaction], Awaitable[BaseModel]],
) -> bytes:
    """Run a change that answers with a record, or give the answer that this key was given before."""

    async def once(change: Transaction) -> bytes:
        former = await find_response(change, key)
        if former is not None:
            return former
        answer = (await attempt(change)).model_dump_json().encode()
        store_response(change, key, answer)
        return answer

    return await records.change(actor, once)


def store_response(change: Transaction, key: IdempotencyKey | None, answer: bytes) -> None:
    """Keep the answer with what is committed; of two requests with one key that run at once the second runs again."""
    if key is not None:
        body = json.dumps({"request": key.fingerprint, "answer": answer.decode()}).encode()
        change.write(Put(IDEMPOTENT_RESPONSES, key.id, body, None, {"at": change.now.isoformat()}))
