"""A fleet with something of everything: each status, each condition, each place where a text of others stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.servers.scripted_control_plane import REGIONS, condition

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import QuietPlane

PLAIN = "as somebody wrote it"


def furnish(plane: QuietPlane, text: str = PLAIN, many: int = 0) -> dict[str, dict[str, Any]]:
    """Workers by name; `text` stands wherever people, EC2 or CML can put one. `many` more are ready."""
    tags = {"course": "routing-101", "owner": text, text[:127]: "of the key"}
    made = {
        "ready": plane.running("ready", tags=tags, license_token="a-licence-token"),
        "idle": plane.running("idle", aws_region=REGIONS[1]),
        "silent": plane.running("silent"),
        "draining": plane.running("draining", aws_region=REGIONS[2], template_name="large"),
        "held": plane.running("held", template_name="medium"),
        "stopped": plane.stopped("stopped", aws_region=REGIONS[1]),
        "failed": plane.failed("failed", text, tags=tags),
        "pending": plane.create("pending", template_name="metal"),
        "ended": plane.running("ended"),
    }
    _say_something(plane, made, text)
    for number in range(many):
        name = f"more-{number:03}"
        made[name] = plane.running(name, aws_region=REGIONS[number % len(REGIONS)])
    return {name: plane.worker(worker) for name, worker in made.items()}


def _say_something(plane: QuietPlane, made: dict[str, dict[str, Any]], text: str) -> None:
    plane.measured(made["ready"])
    plane.measured(made["idle"], 5)
    for name, worker in made.items():
        plane.decided(worker, f"{name}: {text}", text[:300])
    told = [condition("CmlReady", "False", text[:100], text), condition("Stuck", "True", text[:100], text)]
    plane.report(made["silent"], "RUNNING", conditions=[condition("InstanceReady"), *told])
    plane.report(made["ready"], "RUNNING", reason=text, instance_type=text[:64], ami_id=text[:64])
    plane.command(made["draining"], "drain", {"reason": text})
    plane.command(made["held"], "hold", {"reason": text})
    plane.command(made["ended"], "terminate", {"reason": text})
    plane.report(made["ended"], "TERMINATING")
    plane.report(made["ended"], "TERMINATED", terminated_by=text[:100], terminated_reason=text)
    plane.controller(
        "POST",
        f"/api/internal/workers/{made['ready']['id']}/license-status",
        {"status": "failed", "message": text},
    )
    plane.controller("POST", "/api/internal/audit", {"action": "looked", "subject": text[:128], "reason": text})
    report = {"region": REGIONS[2], "open": True, "reason": text, "affected": ["w-1", "w-2"]}
    plane.controller("POST", "/api/internal/fleet/breaker", report)
    template = plane.ask("GET", "/api/worker-templates/small") | {
        "name": "special",
        "description": text,
        "ami_name_pattern": text[:128],
    }
    plane.ask("PUT", "/api/worker-templates/special", template)
    patch = {"discovery": {"worker_discovery_tag_filter": text[:256]}}
    plane.ask("PATCH", "/api/settings", patch)
