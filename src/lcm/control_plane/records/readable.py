"""Lists of records of which one cannot be read: it is logged and left out, and stops no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.control_plane.store.port import StoredDocument

log = structlog.get_logger(__name__)
R = TypeVar("R", bound=BaseModel)


def read_or_skip(stored: StoredDocument, model: type[R], word: str) -> R | None:
    """The record; None, with an error in the log, if it cannot be read."""
    try:
        return model.model_validate_json(stored.body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"[:300]
        log.error("record skipped", kind=word, id=stored.id, reason=reason)
        return None


def readable_records(stored: Iterable[StoredDocument], model: type[R], word: str) -> list[R]:
    """Those that can be read, in their order."""
    found = (read_or_skip(each, model, word) for each in stored)
    return [each for each in found if each is not None]
