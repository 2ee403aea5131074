"""The live fleet as a picture that keys change: which workers fit, which is chosen, what is about to be asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.cli.live import terminal as keyboard

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

HELP = "q quit   / filter   ↑↓ choose   s start   p stop   d drain   e explain"
ACTIONS = {"s": "start", "p": "stop", "d": "drain"}
_QUESTIONS = {
    "start": "Start {name}?",
    "stop": "Stop {name} without waiting for what runs on it?",
    "drain": "Drain {name}: no new lablets, and a stop once the present ones are done?",
}
EXPLAIN, QUIT = "explain", "quit"


@dataclass(frozen=True, slots=True)
class BoardAction:
    """What the person at the keys wants done."""

    what: str
    worker: Worker | None = None


@dataclass(slots=True)
class Board:
    """What is shown and how keys change it. It asks nobody: whoever holds it does what is wished."""

    workers: dict[str, Worker] = field(default_factory=dict)
    filter: str = ""
    chosen: str | None = None  # the id: rows come and go
    typing: bool = False
    asking: str | None = None
    message: str = ""
    text: str = ""  # an explanation that covers the list

    def visible(self) -> list[Worker]:
        """Workers that fit the filter, by name. What has ended is left out unless it is filtered for."""
        wanted = self.filter.lower()
        found = [worker for worker in self.workers.values() if self._fits(worker, wanted)]
        return sorted(found, key=lambda worker: (worker.name, worker.id))

    @property
    def selected(self) -> Worker | None:
        """The worker that keys act on."""
        rows = self.visible()
        return next((worker for worker in rows if worker.id == self.chosen), rows[0] if rows else None)

    def put(self, worker: Worker) -> None:
        """A worker as it is now. An event that was overtaken changes nothing."""
        known = self.workers.get(worker.id)
        if known is None or worker.version >= known.version:
            self.workers[worker.id] = worker

    def press(self, key: str) -> BoardAction | None:
        """What a key does; what it wishes for is given back."""
        if self.typing:
            self._type(key)
            return None
        if self.asking is not None:
            return self._answer(key)
        if self.text:
            self.text = ""
            return BoardAction(QUIT) if key == "q" else None
        self.message = ""
        if key in (keyboard.UP, keyboard.DOWN):
            self._move(-1 if key == keyboard.UP else 1)
            return None
        return self._command(key)

    def _command(self, key: str) -> BoardAction | None:
        worker = self.selected
        if key == "q":
            return BoardAction(QUIT)
        if key == "/":
            self.typing = True
        elif key == keyboard.ESCAPE:
            self.filter = ""
        elif worker is not None and key in ("e", keyboard.ENTER):
            return BoardAction(EXPLAIN, worker)
        elif worker is not None and key in ACTIONS:
            self.chosen, self.asking = worker.id, ACTIONS[key]
        return None

    def question(self) -> str:
        """The confirmation that is waited for; empty if none is."""
        worker = self.selected
        if self.asking is None or worker is None:
            return ""
        return f"{_QUESTIONS[self.asking].format(name=worker.name)} y / n"

    def _answer(self, key: str) -> BoardAction | None:
        if key == keyboard.RESIZED:
            return None
        wish = BoardAction(self.asking or "", self.selected) if key.lower() == "y" else None
        self.message = "" if wish is not None else "Nothing was changed."
        self.asking = None
        return wish

    def _type(self, key: str) -> None:
        if key == keyboard.ENTER:
            self.typing = False
        elif key == keyboard.ESCAPE:
            self.typing, self.filter = False, ""
        elif key == keyboard.ERASE:
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter += key

    def _move(self, step: int) -> None:
        rows = self.visible()
        if not rows:
            return
        selected = self.selected
        place = next((number for number, worker in enumerate(rows) if selected and worker.id == selected.id), 0)
        self.chosen = rows[min(max(place + step, 0), len(rows) - 1)].id

    def _fits(self, worker: Worker, wanted: str) -> bool:
        if worker.status == "TERMINATED" and "terminated" not in wanted:
            return False
        facts = f"{worker.name} {worker.status} {worker.aws_region} {worker.template_name} {worker.desired_status}"
        return all(part in facts.lower() for part in wanted.split())
