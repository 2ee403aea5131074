"""State of `lcm watch`: visible workers or lablets, selection, filter, and the action to confirm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lcm.cli.live import terminal as keyboard
from lcm.core import clock
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.lablet.urgency import LAST_LABLET_PROBLEM, lablet_urgency, shown_until
from lcm.model.worker.record import Worker
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM, worker_urgency

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import Lablet

Row: TypeAlias = "Worker | Lablet"

WORKERS, LABLETS = "workers", "lablets"
HELP = {
    WORKERS: "q quit  / filter  ↑↓ PgUp PgDn  Tab lablets  s start  p stop  d drain  e explain",
    LABLETS: "q quit  / filter  ↑↓ PgUp PgDn  Tab workers  e details",
}
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
    lablet: Lablet | None = None


@dataclass(slots=True)
class Board:
    """What is shown, and how keys change it. It does no I/O: the caller performs the actions."""

    workers: dict[str, Worker] = field(default_factory=dict)
    lablets: dict[str, Lablet] = field(default_factory=dict)
    leaked_instances: int = 0
    lost_at: datetime | None = None  # when the connection was lost; None while there is one
    view: str = WORKERS
    filter: str = ""
    selected_id: str | None = None  # an id, as rows come and go; None: the first row
    editing_filter: bool = False
    pending_action: str | None = None
    typed: str = ""  # the answer to the pending question so far
    message: str = ""
    overlay: str = ""  # an explanation that covers the list
    page_size: int = 10  # rows on the screen
    _urgencies: dict[str, int] = field(default_factory=dict)
    _rows: list[Row] | None = None  # cached until something changes: sorting thousands takes milliseconds

    def visible(self) -> list[Row]:
        """Workers or lablets that match the filter, problems first, then by name. Ended ones are hidden."""
        if self._rows is None:
            query = self.filter.lower()
            records: list[Row] = [*(self.workers if self.view == WORKERS else self.lablets).values()]
            matches = [row for row in records if self._matches(row, query)]
            self._rows = sorted(matches, key=lambda row: (self._urgencies[row.id], row.name, row.id))
        return self._rows

    @property
    def selected(self) -> Row | None:
        """The selected row, which keys act on."""
        rows = self.visible()
        return rows[self.place] if rows else None

    @property
    def place(self) -> int:
        """The position of the selected row."""
        return next((number for number, row in enumerate(self.visible()) if row.id == self.selected_id), 0)

    @property
    def problems(self) -> tuple[int, int]:
        """How many workers and how many shown lablets have a problem."""
        workers = sum(self._urgencies[each] <= LAST_WORKER_PROBLEM for each in self.workers)
        now = clock.now().isoformat()
        lablets = sum(
            self._urgencies[each.id] <= LAST_LABLET_PROBLEM and shown_until(each) > now
            for each in self.lablets.values()
        )
        return workers, lablets

    def update(self, worker: Worker) -> None:
        """Store a worker unless a newer version is known: events may arrive late."""
        stored = self.workers.get(worker.id)
        if stored is None or worker.version >= stored.version:
            self.workers[worker.id] = worker
            self._urgencies[worker.id] = worker_urgency(worker)
            self._rows = None

    def update_lablet(self, lablet: Lablet) -> None:
        """Store a lablet unless a newer version is known."""
        stored = self.lablets.get(lablet.id)
        if stored is None or lablet.version >= stored.version:
            self.lablets[lablet.id] = lablet
            self._urgencies[lablet.id] = lablet_urgency(lablet)
            self._rows = None

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
        if key in keyboard.MOVES:
            self._move(key)
            return None
        return self._command(key)

    def _command(self, key: str) -> BoardAction | None:
        row = self.selected
        if key == "q":
            return BoardAction(QUIT)
        if key == "/":
            self.editing_filter = True
        elif key == keyboard.ESCAPE:
            self._set_filter("")
        elif key == keyboard.TAB:
            self.view, self.selected_id, self._rows = (LABLETS if self.view == WORKERS else WORKERS), None, None
        elif row is not None and key in ("e", keyboard.ENTER):
            return BoardAction(EXPLAIN, worker=row) if isinstance(row, Worker) else BoardAction(EXPLAIN, lablet=row)
        elif isinstance(row, Worker) and key in ACTIONS:
            self.selected_id, self.pending_action, self.typed = row.id, ACTIONS[key], ""
        return None

    def prompt(self) -> str:
        """The pending confirmation prompt; empty if there is none."""
        row = self.selected
        if self.pending_action is None or row is None:
            return ""
        question = _QUESTIONS[self.pending_action].format(name=row.name)
        return f"{question} Type its name and Enter, Esc to go back: {self.typed}▏"

    def _answer(self, key: str) -> BoardAction | None:
        """Type the name of the worker, so that no single key changes anything."""
        if key == keyboard.ERASE:
            self.typed = self.typed[:-1]
        elif len(key) == 1:
            self.typed += key
        if key not in (keyboard.ENTER, keyboard.ESCAPE):
            return None
        row = self.selected
        agreed = key == keyboard.ENTER and isinstance(row, Worker) and self.typed == row.name
        action = BoardAction(self.pending_action or "", row) if agreed and isinstance(row, Worker) else None
        self.message = "" if action is not None else "No changes made."
        self.pending_action = None
        return action

    def _edit_filter(self, key: str) -> None:
        if key == keyboard.ENTER:
            self.editing_filter = False
        elif key == keyboard.ESCAPE:
            self.editing_filter = False
            self._set_filter("")
        elif key == keyboard.ERASE:
            self._set_filter(self.filter[:-1])
        elif len(key) == 1:
            self._set_filter(self.filter + key)

    def _set_filter(self, text: str) -> None:
        self.filter, self._rows = text, None

    def _move(self, key: str) -> None:
        rows = self.visible()
        if not rows or key == keyboard.HOME:
            self.selected_id = None  # the first row, also when another one comes first
            return
        place = self.place
        targets = {
            keyboard.UP: place - 1,
            keyboard.DOWN: place + 1,
            keyboard.PAGE_UP: place - self.page_size,
            keyboard.PAGE_DOWN: place + self.page_size,
            keyboard.END: len(rows) - 1,
        }
        self.selected_id = rows[min(max(targets[key], 0), len(rows) - 1)].id

    def _matches(self, row: Row, query: str) -> bool:
        if isinstance(row, Worker):
            if row.status == "TERMINATED" and "terminated" not in query:
                return False
            text = f"{row.name} {row.status} {row.aws_region} {row.template_name} {row.desired_status}"
        else:
            ended = row.status in FINAL_LABLET_STATUSES and shown_until(row) <= clock.now().isoformat()
            if ended and row.status.lower() not in query:
                return False
            worker = self.workers.get(row.worker_id or "")
            text = f"{row.name} {row.status} {row.owner_name} {row.definition} {worker.name if worker else ''}"
        return all(part in text.lower() for part in query.split())
