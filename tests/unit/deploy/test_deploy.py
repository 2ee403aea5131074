"""Files in deploy/ parse, and the metrics, settings and chapters that they name exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from lcm.cloud.aws.config import AwsConfig
from lcm.control_plane.web.lablets.list_page import LabletListQuery
from lcm.control_plane.web.routing import ROUTERS
from lcm.control_plane.web.workers.list_page import WorkerListQuery
from lcm.settings import Settings, describe
from lcm.wiring.control_plane import ControlPlaneProcessSettings
from lcm.wiring.lablet_controller import LabletControllerProcessSettings
from lcm.wiring.resource_scheduler import ResourceSchedulerProcessSettings
from lcm.wiring.worker_controller import WorkerControllerProcessSettings
from tests.support.servers.metric_registries import platform_metrics, sample_names

if TYPE_CHECKING:
    from lcm.control_plane.web.list_query import ListQuery

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SERVICES: dict[str, type[Settings]] = {
    "control-plane": ControlPlaneProcessSettings,
    "worker-controller": WorkerControllerProcessSettings,
    "resource-scheduler": ResourceSchedulerProcessSettings,
    "lablet-controller": LabletControllerProcessSettings,
}
PORTS = {"control-plane": 8080, "resource-scheduler": 8081, "lablet-controller": 8082, "worker-controller": 8083}
# Labels that Prometheus adds to every scraped series.
SCRAPED = {"instance", "job", "le"}
# Prometheus makes this series itself: whether a scrape succeeded.
OF_PROMETHEUS = {"up"}
WORDS = {"or", "and", "unless", "by", "offset"}
HOST = re.compile(r"^[^/]*[.:][^/]*/|^localhost/")


# Queries


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return found


def queries() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [*(rule["expr"] for rule in rules()), *panels]


def metrics_in(query: str) -> set[str]:
    """Names that are neither functions, keywords, nor parts of label lists and strings."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without)\s*\([^)]*\)', " ", query)
    return {name for name in re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare) if name not in WORDS}


def labels_in(query: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', '""', query)
    grouped = ",".join(re.findall(r"\bby\s*\(([^)]*)\)", bare)).split(",")
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", " ".join(re.findall(r"\{([^}]*)\}", bare)))
    return {label.strip() for label in (*grouped, *matched) if label.strip()}


@pytest.mark.parametrize("query", queries())
def test_a_query_names_only_metrics_and_labels_that_exist(query: str, run_folder: Path) -> None:
    existing = platform_metrics(run_folder)
    named = metrics_in(query)
    assert named
    assert named <= sample_names(existing) | OF_PROMETHEUS
    families = [name for name in existing if any(each.startswith(name) for each in named)]
    known = {label for name in families for label in existing[name]["labels"]}
    assert labels_in(query) <= known | SCRAPED
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")


def test_no_metric_tells_of_a_team(run_folder: Path) -> None:
    """Nobody needs a token for metrics: which teams there are, and how much they have, is not for everybody."""
    labels = {label for family in platform_metrics(run_folder).values() for label in family["labels"]}
    assert {"worker_id", "tier"} <= labels, "labels are read"
    assert not labels & {"team", "team_id", "owner", "booking", "booking_id", "lablet", "lablet_id"}


def test_every_alert_says_what_happened_and_where_to_read_on() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    chapters = {slug(title) for title in re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)}
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        notes = rule["annotations"]
        assert notes["summary"]
        assert notes["description"].endswith(".")
        path, _, anchor = notes["runbook"].partition("#")
        assert (path, anchor in chapters) == ("docs/operations.md", True), notes["runbook"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_the_page_of_its_subject(rule: dict[str, Any]) -> None:
    """The page exists and knows each filter of the link: an unknown one would be ignored, and show everything."""
    page = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"of-\1", rule["annotations"]["page"])
    link = urlsplit(page)
    assert any(route.path == link.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    lists: dict[str, type[ListQuery]] = {each.path: each for each in (WorkerListQuery, LabletListQuery)}
    if link.path not in lists:
        assert not link.query
        return
    query = lists[link.path].from_query(QueryParams(link.query))
    assert sorted(parse_qsl(urlsplit(query.url()).query)) == sorted(parse_qsl(link.query))
    assert "region" not in labels_in(rule["expr"]) or "region=of-region" in page


def test_metrics_of_problems_have_alerts() -> None:
    watched = {name for rule in rules() for name in metrics_in(rule["expr"])}
    assert {"up", "lcm_workers_stuck", "lcm_workers_impaired", "lcm_workers_maintenance"} <= watched


def test_every_link_to_a_chapter_of_the_handbooks_leads_to_one() -> None:
    docs = ROOT / "docs"
    pages = {path.name: path.read_text() for path in (*docs.glob("reference/*.md"), *docs.glob("*.md"))}
    pages["README.md"] = (DEPLOY / "README.md").read_text()
    chapters = {
        name: {slug(title) for title in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}
        for name, text in pages.items()
    }
    for name in ("operations.md", "guide.md", "metrics.md", "settings.md"):
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", pages[name]):
            assert anchor in chapters[Path(target).name if target else name], f"{name}: {target}#{anchor}"


def slug(title: str) -> str:
    """A heading's anchor."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_dashboard_can_be_drawn() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["datasource"]["uid"] == "${datasource}"


# Processes


def variables_of(service: str) -> set[str]:
    docs = describe(SERVICES[service])
    return {name for doc in docs for name in (doc.variable, *doc.alias_variables)}


def secret_variables() -> set[str]:
    return {doc.variable for model in SERVICES.values() for doc in describe(model) if doc.secret} | {"STORE_URL"}


def test_compose_has_the_whole_set_up_and_only_real_settings() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert {name for name in services if name.startswith("etcd")} == {"etcd1", "etcd2", "etcd3"}
    assert {name for name in services if re.fullmatch(r"mongo\d", name)} == {"mongo1", "mongo2", "mongo3"}
    ours = {name: service for name, service in services.items() if service["image"].startswith("lcm:")}
    twice = ("lablet-controller", "resource-scheduler", "worker-controller")
    assert sorted(ours) == ["control-plane", *(f"{name}-{number}" for name in twice for number in (1, 2))]
    published = [port for service in ours.values() for port in service["ports"]]
    assert len({port.split(":")[1] for port in published}) == len(published)
    for service in ours.values():
        (command,) = service["command"]
        assert [port.split(":")[-1] for port in service["ports"]] == [str(PORTS[command])]
        assert f":{PORTS[command]}/ready" in service["healthcheck"]["test"][-1]
        assert set(service["environment"]) <= variables_of(command)
        given = {name: value for name, value in service["environment"].items() if name in secret_variables()}
        given.pop("STORE_URL", None)  # no password within this network
        assert all(str(value).startswith("${") for value in given.values()), given
    for service in services.values():
        assert not HOST.match(service["image"]), service["image"]


def test_the_image_is_built_from_locks_and_runs_unprivileged() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert not [name for name in re.findall(r"^(?:ARG PYTHON=|FROM )(\S+)", text, re.MULTILINE) if HOST.match(name)]
    assert "--require-hashes -r requirements/deploy.txt" in text
    assert "--no-deps --no-build-isolation ." in text
    assert re.search(r"^USER (\d+)", text, re.MULTILINE)
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    set_there = set(re.findall(r"(\w+)=", block))
    of_python = {"PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    assert set_there - of_python <= set.intersection(*(variables_of(name) for name in SERVICES))
    (exposed,) = re.findall(r"^EXPOSE (.+)$", text, re.MULTILINE)
    assert sorted(exposed.split()) == sorted(str(port) for port in PORTS.values())
    for needed in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / part).exists() for part in needed.split())


def test_the_lock_of_the_image_is_that_of_the_tests_with_both_extras() -> None:
    locked, tested = (pins(name) for name in ("deploy", "dev"))
    assert locked.items() <= tested.items()
    assert {"boto3", "pymongo", "hatchling"} <= locked.keys()
    assert not {"pytest", "moto", "mypy"} & locked.keys()


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", text, re.MULTILINE))


def test_the_example_of_regions_is_one() -> None:
    config = AwsConfig.load(str(DEPLOY / "regions.example.yaml"))
    assert list(config.regions) == ["eu-central-1", "us-east-1"]
    role = config.regions["eu-central-1"].role_arn
    assert role is not None
    assert "role/lcm-controller-" in role


def test_the_chart_and_the_package_have_one_version() -> None:
    about = yaml.safe_load((DEPLOY / "helm" / "lcm" / "Chart.yaml").read_text())
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert about["appVersion"] == version
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix in ("", ".md", ".py", ".yaml", ".sh")]
    named = {
        (path.name, found)
        for path in files
        for found in re.findall(r"(?:\blcm[:-]|\blcm_fleet-|ARG VERSION=)(\d+\.\d+\.\d+)", path.read_text())
    }
    assert {name for name, _ in named} >= {"compose.yaml", "Containerfile", "README.md", "engine.py"}
    assert {found for _, found in named} == {version}, named
