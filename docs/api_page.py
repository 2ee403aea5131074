"""Writes `docs/api.md` from the code: `make docs`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

from lcm.control_plane.app import make_app

PAGE = Path(__file__).with_name("api.md")

INTRODUCTION = """\
# HTTP API

Made from the code by `make docs`; do not edit.

The control plane serves JSON over HTTP on port 8080 (`CONTROL_PLANE_PORT`). This page lists every operation. A running
control plane serves the full reference, with parameters, bodies, examples and errors, at `/docs`, and the OpenAPI
document at `/openapi.json`. [reference/api.md](reference/api.md) states the conventions: paging, versions, idempotency,
errors, roles.

```
export LCM_URL=http://127.0.0.1:8080 LCM_TOKEN=<a token>
curl -H "Authorization: Bearer $LCM_TOKEN" "$LCM_URL/api/workers?status=RUNNING&limit=50"
curl -H "Authorization: Bearer $LCM_TOKEN" -H 'Content-Type: application/json' -H 'Idempotency-Key: class-7' \\
     -d '{"name": "seat-7", "template_name": "small"}' "$LCM_URL/api/workers"
curl -H "Authorization: Bearer $LCM_TOKEN" -X POST "$LCM_URL/api/workers/<id>/stop"
curl -N -H "Authorization: Bearer $LCM_TOKEN" "$LCM_URL/api/events/stream"
```

`lcm tokens create NAME --role viewer` makes a token. In Python, `lcm.client.Client` offers the same operations, typed.

An error is a problem document (RFC 9457); programs read `code`:

```
{"type": "about:blank", "title": "Conflict", "status": 409, "code": "name_taken", "detail": "…"}
```

Role: the least role that may call the operation. `open` needs no sign-in, `any` needs a sign-in and no particular role.
"""


@cache
def page() -> str:
    """The page as it should be."""
    # The document is made from the routes alone; none is called here.
    paths = make_app(cast("Any", None), "-").openapi()["paths"]
    groups: dict[str, list[str]] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_row(method, path, operation))
    parts = [INTRODUCTION]
    for tag, rows in groups.items():
        parts.append(f"\n## {tag.capitalize()}\n\n| operation | role | what it does |\n|---|---|---|\n" + "".join(rows))
    return "".join(parts)


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    what = operation.get("description", "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    role = operation.get("x-lcm-role") or ("any" if operation.get("security") else "open")
    return f"| `{method.upper()} {path}` | {role} | {what} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
