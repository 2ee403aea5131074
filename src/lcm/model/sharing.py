"""Less memory for data of which there is a lot: a fleet of ten thousand workers is kept whole by its controllers."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)
_ALL_OF: dict[type[BaseModel], set[str]] = {}


def with_shared_names(model: M) -> M:
    """The same model. Each one keeps a set of the fields it was given; where that is all, one set serves its class.

    Of a worker these sets are more than half of the memory.
    """
    _share(model)
    return model


def _share(model: BaseModel) -> None:
    cls = type(model)
    every = _ALL_OF.get(cls)
    if every is None:
        every = _ALL_OF[cls] = set(cls.model_fields)
    if len(model.__pydantic_fields_set__) == len(every):
        object.__setattr__(model, "__pydantic_fields_set__", every)
    for value in model.__dict__.values():
        if isinstance(value, BaseModel):
            _share(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for each in value:
                _share(each)
