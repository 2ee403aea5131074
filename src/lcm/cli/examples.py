"""Examples that each `--help` shows at its end."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, tuple[str, ...]] = {
    "workers list": ("lcm workers list --status running,stopped", "lcm workers list --region eu-west-1 -o json"),
    "workers get": ("lcm workers get alpha",),
    "workers explain": ("lcm workers explain alpha",),
    "workers history": ("lcm workers history alpha",),
    "workers wait": (
        "lcm workers wait alpha --for ready --timeout 20m",
        "lcm workers wait alpha --for terminated",
    ),
    "workers create": (
        "lcm workers create alpha --template small",
        "lcm workers create beta --template metal --region eu-west-1 --tag course=bgp --stopped",
    ),
    "workers edit": (
        "lcm workers edit alpha --tag course=bgp --remove-tag owner",
        "lcm workers edit alpha --no-idle-detection --if-lost replace",
    ),
    "workers start": ("lcm workers start alpha",),
    "workers stop": ("lcm workers stop alpha --reason 'end of the course'",),
    "workers drain": ("lcm workers drain alpha",),
    "workers cancel-drain": ("lcm workers cancel-drain alpha",),
    "workers retry": ("lcm workers retry alpha",),
    "workers adopt": ("lcm workers adopt i-0abc123 --template medium", "lcm workers adopt alpha --not-schedulable"),
    "workers terminate": ("lcm workers terminate alpha --dry-run", "lcm workers terminate alpha --yes"),
    "workers hold": ("lcm workers hold alpha --reason 'looking into a crash' --until 2h",),
    "workers release": ("lcm workers release alpha",),
    "workers trust": ("lcm workers trust alpha",),
    "workers license": (
        "lcm workers license alpha register --license-token-file token.txt",
        "lcm workers license alpha deregister",
    ),
    "lablets list": ("lcm lablets list --owner anna", "lcm lablets list --worker alpha --all"),
    "lablets get": ("lcm lablets get anna-bgp",),
    "lablets history": ("lcm lablets history anna-bgp",),
    "lablets create": ("lcm lablets create two-routers --name anna-bgp --ttl 4h",),
    "lablets preview": ("lcm lablets preview two-routers@1.0",),
    "lablets terminate": ("lcm lablets terminate anna-bgp --yes",),
    "lablets wait": ("lcm lablets wait anna-bgp --for running",),
    "definitions list": ("lcm definitions list",),
    "definitions get": ("lcm definitions get two-routers@1.0",),
    "definitions create": ("lcm definitions create --file examples/two-routers.yaml",),
    "definitions enable": ("lcm definitions enable two-routers@1.0",),
    "definitions disable": ("lcm definitions disable two-routers@1.0",),
    "templates list": ("lcm templates list -o wide",),
    "templates get": ("lcm templates get metal",),
    "templates apply": ("lcm templates apply templates.yaml --dry-run",),
    "templates enable": ("lcm templates enable metal",),
    "templates disable": ("lcm templates disable metal",),
    "fleet": ("lcm fleet", "lcm fleet -o json"),
    "fleet hold": ("lcm fleet hold --reason 'AWS incident' --until 1h",),
    "fleet release": ("lcm fleet release",),
    "fleet overnight": ("lcm fleet overnight",),
    "plan": ("lcm plan", "lcm plan --watch"),
    "watch": ("lcm watch",),
    "top": ("lcm top",),
    "audit": ("lcm audit --since 12h",),
    "settings show": ("lcm settings show",),
    "settings set": ("lcm settings set worker_idle_timeout_minutes 90 --dry-run",),
    "settings unset": ("lcm settings unset worker_idle_timeout_minutes",),
    "subscriptions list": ("lcm subscriptions list",),
    "subscriptions get": ("lcm subscriptions get on-call",),
    "subscriptions create": (
        "lcm subscriptions create on-call --target slack --url-file slack-url.txt --severity critical",
        "lcm subscriptions create desk --target email --to desk@example.com --type worker_failed",
    ),
    "subscriptions test": ("lcm subscriptions test on-call",),
    "subscriptions enable": ("lcm subscriptions enable on-call",),
    "subscriptions disable": ("lcm subscriptions disable on-call",),
    "subscriptions rotate-secret": ("lcm subscriptions rotate-secret on-call",),
    "subscriptions dead-letters": ("lcm subscriptions dead-letters on-call",),
    "subscriptions resend": ("lcm subscriptions resend on-call sub-3f9k2m1xq0ab.ev-7k2m9xq01rst",),
    "subscriptions delete": ("lcm subscriptions delete on-call --yes",),
    "tokens list": ("lcm tokens list",),
    "tokens create": ("lcm tokens create ci --role operator",),
    "tokens revoke": ("lcm tokens revoke ci --yes",),
    "sessions list": ("lcm sessions list",),
    "sessions end": ("lcm sessions end 3f9c2a --dry-run",),
    "secrets rotate": ("lcm secrets rotate",),
    "breaker reset": ("lcm breaker reset eu-west-1",),
    "leadership reset": ("lcm leadership reset worker-controller",),
    "dashboard": ("lcm dashboard",),
    "login": ("lcm login https://lcm.example.org", "lcm login https://lcm.example.org --token-stdin"),
    "logout": ("lcm logout", "lcm logout https://lcm.example.org"),
    "contexts list": ("lcm contexts list",),
    "contexts use": ("lcm contexts use school",),
    "contexts remove": ("lcm contexts remove school",),
    "whoami": ("lcm whoami",),
    "config show": ("lcm config show worker-controller",),
    "config check": ("lcm config check worker-controller",),
    "completion": ("source <(lcm completion bash)",),
    "up": ("lcm up", "lcm up --empty --speed 10"),
    "controller": ("lcm controller examples.notes:NotesController --port 9001",),
    "control-plane": ("lcm control-plane --config control-plane.toml",),
    "worker-controller": ("lcm worker-controller --config worker-controller.toml",),
    "resource-scheduler": ("lcm resource-scheduler",),
    "lablet-controller": ("lcm lablet-controller",),
    "cml-simulator": ("lcm cml-simulator --version 2.9 --port 8443",),
    "version": ("lcm version",),
}

_KEEP_LINES = "\b"  # click leaves the line breaks of a paragraph that begins with it


def add_examples(command: Any, path: str) -> None:
    """Add the examples of a command and of its subcommands to their help."""
    if path in EXAMPLES:
        lines = [f"  {each}" for each in EXAMPLES[path]]
        command.epilog = "\n".join([_KEEP_LINES, "Examples:" if len(lines) > 1 else "Example:", *lines])
    for name, subcommand in getattr(command, "commands", {}).items():
        add_examples(subcommand, f"{path} {name}")
