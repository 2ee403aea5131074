"""What processes say of themselves: answers that no contract but the open routes' own describes."""

from __future__ import annotations

from lcm.model.base import Answer


class Readiness(Answer):
    """Whether the control plane can do its work now, and if not, why."""

    ready: bool
    reasons: tuple[str, ...] = ()


class Facts(Answer, extra="allow"):
    """What a process says of itself."""
