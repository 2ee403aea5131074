"""Small answers of the API that belong to no record."""

from __future__ import annotations

from pydantic import Field

from lcm.model.base import Answer, ToldSecret


class ToldLicenseToken(Answer):
    """A worker's licence token, for the controller alone."""

    token: ToldSecret


class CmlCredentials(Answer):
    """What a controller signs in to a worker's CML with."""

    username: str
    password: ToldSecret


class Kept(Answer):
    """That something was kept."""

    kept: bool = True


class ResetLeadership(Answer):
    """Whose newest term was forgotten."""

    controller: str


class SecretsRotated(Answer):
    """What became of the stored secrets when they were to be encrypted with the first key."""

    rotated: int
    already: int
    unreadable: tuple[str, ...] = Field(
        default=(), description="Secrets whose key is missing or that were altered, a hundred at most: left as they are"
    )
