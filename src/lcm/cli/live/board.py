"""State of `lcm watch`: visible workers, selection, filter, and the action to confirm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.cli.live import terminal as keyboard

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

HELP = "q quit   / filter   ↑↓ select   s start   p stop   d drain   e explain"
ACTIONS = {"s": "start", "p": "stop", "d": "drain"}
_QUESTIONS = {
    "start": "Start {name}?",
    "stop": "Stop {name} without waiting for its labs?",
    "drain": "Drain {name}: no new lablets, then stop when the present ones end?",
}
EXPLAIN, QUIT = "explain", "quit"


@dataclass(frozen=True, slots=True)
class BoardAction:
    """An action that the user requested by key."""

    name: str
    worker: Worker | None = None


@dataclass(slots=True)
class Board:
    """What is shown, and how keys change it. It does no I/O: the caller performs the actions."""

    workers: dict[str, Worker] = field(default_factory=dict)
    filter: str = ""
    selected_id: str | None = None  # an id, as rows come and go
    editing_filter: bool = False
    pending_action: str | None = None
    typed: str = ""  # the answer to the pending question so far
    message: str = ""
    overlay: str = ""  # an explanation that covers the list

    def visible(self) -> list[Worker]:
        """Workers that match the filter, by name. Terminated ones are hidden unless filtered for."""
        matches = [worker for worker in self.workers.values() if self._matches(worker, self.filter.lower())]
        return sorted(matches, key=lambda worker: (worker.name, worker.id))

    @property
    def selected(self) -> Worker | None:
        """The selected worker, which keys act on."""
        rows = self.visible()
        return next((worker for worker in rows if worker.id == self.selected_id), rows[0] if rows else None)

    def update(self, worker: Worker) -> None:
        """Store a worker unless a newer version is known: events may arrive late."""
        stored = self.workers.get(worker.id)
        if stored is None or worker.version >= stored.version:
            self.workers[worker.id] = worker

    def handle_key(self, key: str) -> BoardAction | None:
        """Apply a key; returns the requested action, if any."""
        if self.editing_filter:
            self._edit_filter(key)
            return None
        if self.pending_action is not None:
            return self._answer(key)
        if self.overlay:
            self.overlay = ""
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
            self.editing_filter = True
        elif key == keyboard.ESCAPE:
            self.filter = ""
        elif worker is not None and key in ("e", keyboard.ENTER):
            return BoardAction(EXPLAIN, worker)
        elif worker is not None and key in ACTIONS:
            self.selected_id, self.pending_action, self.typed = worker.id, ACTIONS[key], ""
        return None

    def prompt(self) -> str:
        """The pending confirmation prompt; empty if there is none."""
        worker = self.selected
        if self.pending_action is None or worker is None:
            return ""
        question = _QUESTIONS[self.pending_action].format(name=worker.name)
        return f"{question} Type its name and Enter, Esc to go back: {self.typed}▏"

    def _answer(self, key: str) -> BoardAction | None:
        """Type the name of the worker, so that no single key changes anything."""
        if key == keyboard.ERASE:
            self.typed = self.typed[:-1]
        elif len(key) == 1:
            self.typed += key
        if key not in (keyboard.ENTER, keyboard.ESCAPE):
            return None
        worker = self.selected
        agreed = key == keyboard.ENTER and worker is not None and self.typed == worker.name
        action = BoardAction(self.pending_action or "", worker) if agreed else None
        self.message = "" if agreed else "No changes made."
        self.pending_action = None
        return action

    def _edit_filter(self, key: str) -> None:
        if key == keyboard.ENTER:
            self.editing_filter = False
        elif key == keyboard.ESCAPE:
            self.editing_filter, self.filter = False, ""
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
        self.selected_id = rows[min(max(place + step, 0), len(rows) - 1)].id

    def _matches(self, worker: Worker, query: str) -> bool:
        if worker.status == "TERMINATED" and "terminated" not in query:
            return False
        text = f"{worker.name} {worker.status} {worker.aws_region} {worker.template_name} {worker.desired_status}"
        return all(part in text.lower() for part in query.split())
