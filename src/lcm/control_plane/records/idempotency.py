"""Idempotent requests: the answer to a key is kept in the same commit as what was done, and given again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.errors import Refusal
from lcm.control_plane.records.kinds import ANSWERS
from lcm.control_plane.store.port import Conflict, Delete, Put, Where
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.control_plane.records.unit_of_work import Change, Records
    from lcm.control_plane.store.port import Store
    from lcm.model.audit import Actor

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Key:
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


async def former_answer(change: Change, key: Key | None) -> bytes | None:
    """The answer that was given to this key before; refused if it was another request."""
    stored = None if key is None else await change.store.get(ANSWERS, key.id)
    if key is None or stored is None:
        return None
    kept = json.loads(stored.body)
    if kept["request"] != key.fingerprint:
        detail = "this Idempotency-Key was used with another request; use a new one"
        raise Refusal(ProblemCode.IDEMPOTENCY_MISMATCH, detail)
    return str(kept["answer"]).encode()


async def forget_old_answers(store: Store, now: datetime) -> int:
    """Forget answers that nobody will ask for again, in small portions; says how many."""
    old, gone = Where(below={"at": (now - KEPT_FOR).isoformat()}), 0
    while items := (await store.find(ANSWERS, old, limit=500)).items:
        try:
            await store.commit([Delete(ANSWERS, item.id, item.revision) for item in items])
        except Conflict:
            break  # another control plane is at it too
        gone += len(items)
    return gone


async def answered(
    records: Records, actor: Actor, key: Key | None, attempt: Callable[[Change], Awaitable[BaseModel]]
) -> bytes:
    """Run a change that answers with a record, or give the answer that this key was given before."""

    async def once(change: Change) -> bytes:
        former = await former_answer(change, key)
        if former is not None:
            return former
        answer = (await attempt(change)).model_dump_json().encode()
        keep_answer(change, key, answer)
        return answer

    return await records.change(actor, once)


def keep_answer(change: Change, key: Key | None, answer: bytes) -> None:
    """Keep the answer with what is committed; of two requests with one key that run at once the second runs again."""
    if key is not None:
        body = json.dumps({"request": key.fingerprint, "answer": answer.decode()}).encode()
        change.write(Put(ANSWERS, key.id, body, None, {"at": change.now.isoformat()}))
