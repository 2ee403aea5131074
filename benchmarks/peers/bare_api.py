"""`python -m benchmarks.peers.bare_api FILE PORT`: a page of workers by FastAPI and sqlite3, and nothing else.

No authentication, no cursor, no validation of what is stored: as little as a handler can do.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from benchmarks.store import WORKERS
from benchmarks.support.control_plane import record


def fill(path: str) -> sqlite3.Connection:
    """The same records as those of the control plane."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE workers (id TEXT PRIMARY KEY, status TEXT, aws_region TEXT, body TEXT)")
    database.execute("CREATE INDEX by_region ON workers (aws_region, status, id)")
    bodies = (json.loads(record(number).body or b"") for number in range(WORKERS))
    rows = ((body["id"], body["status"], body["aws_region"], json.dumps(body)) for body in bodies)
    database.executemany("INSERT INTO workers VALUES (?, ?, ?, ?)", rows)
    database.commit()
    return database


def make_app(database: sqlite3.Connection) -> FastAPI:
    """One route."""
    app = FastAPI()

    @app.get("/api/workers")
    async def workers(status: str, aws_region: str, limit: int) -> dict[str, Any]:
        wanted = status.split(",")
        marks = ", ".join("?" * len(wanted))
        query = f"SELECT body FROM workers WHERE aws_region = ? AND status IN ({marks}) ORDER BY id LIMIT ?"
        rows = database.execute(query, (aws_region, *wanted, limit))
        return {"items": [json.loads(body) for (body,) in rows]}

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(fill(sys.argv[1])), port=int(sys.argv[2]), loop="uvloop", http="httptools", log_level="error")
