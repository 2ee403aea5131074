"""How CML refuses: a code and a description."""

from __future__ import annotations


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description

    def body(self) -> dict[str, object]:
        """The JSON of it."""
        return {"code": self.code, "description": self.description}
