"""The lablet controller's own HTTP surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import admin_api
from lcm.controllers.lablet.metrics import lablet_stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.controllers.lablet.controller import LabletReconciler
    from lcm.core.hosting import HostedService


def make_lablet_admin_app(
    reconciler: LabletReconciler,
    doorkeeper: AdminAuthenticator,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the reconciler among them."""
    find = reconciler.internal.lablet
    told = admin_api.AdminInfo("lablet controller", "lablet", lambda: lablet_stats(reconciler), find)
    return admin_api.make_admin_app(reconciler, doorkeeper, services, info, told, registry)
