"""A sample fleet with every status and condition, and with user text in every place that can show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.servers.scripted_control_plane import REGIONS, condition

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane

SAMPLE_TEXT = "text written by a user"


def create_sample_fleet(
    plane: ScriptedControlPlane, text: str = SAMPLE_TEXT, many: int = 0
) -> dict[str, dict[str, Any]]:
    """Workers by name. `text` is used wherever people, EC2 or CML can write text. `many` more workers are ready."""
    tags = {"course": "routing-101", "owner": text, text[:127]: "of the key"}
    made = {
        "ready": plane.running("ready", tags=tags, license_token="a-license-token"),
        "idle": plane.running("idle", aws_region=REGIONS[1]),
        "silent": plane.running("silent"),
        "draining": plane.running("draining", aws_region=REGIONS[2], template_name="large"),
        "held": plane.running("held", template_name="medium"),
        "stopped": plane.stopped("stopped", aws_region=REGIONS[1]),
        "failed": plane.failed("failed", text, tags=tags),
        "pending": plane.create("pending", template_name="metal"),
        "ended": plane.running("ended"),
    }
    _add_details(plane, made, text)
    for number in range(many):
        name = f"more-{number:03}"
        made[name] = plane.running(name, aws_region=REGIONS[number % len(REGIONS)])
    return {name: plane.worker(worker) for name, worker in made.items()}


def _add_details(plane: ScriptedControlPlane, made: dict[str, dict[str, Any]], text: str) -> None:
    plane.measured(made["ready"])
    plane.measured(made["idle"], 5)
    for name, worker in made.items():
        plane.decided(worker, f"{name}: {text}", text[:300])
    conditions = [condition("CmlReady", "False", text[:100], text), condition("Stuck", "True", text[:100], text)]
    plane.report(made["silent"], "RUNNING", conditions=[condition("InstanceReady"), *conditions])
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
    plane.controller("POST", "/api/internal/audit", {"action": "inspected", "subject": text[:128], "reason": text})
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
