"""What a worker is, and what it is wanted to be."""

from __future__ import annotations

from lcm.model.base import Choice


class WorkerStatus(Choice):
    """Where a worker is in its life."""

    PENDING = "PENDING"
    PROVISIONING = "PROVISIONING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class DesiredStatus(Choice):
    """What a worker is wanted to be. TERMINATED is final once set."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    TERMINATED = "TERMINATED"


class Origin(Choice):
    """How a record came to be."""

    CREATED = "created"
    IMPORTED = "imported"
    SCALE_UP = "scale-up"


class LostInstancePolicy(Choice):
    """What becomes of a worker whose instance is gone."""

    TERMINATE = "terminate"
    REPLACE = "replace"


class LicenseStatus(Choice):
    """Where a worker's licence stands."""

    UNREGISTERED = "unregistered"
    REGISTERING = "registering"
    REGISTERED = "registered"
    FAILED = "failed"
    DEREGISTERED = "deregistered"


class LicenseOperation(Choice):
    """What can be done with a licence."""

    REGISTER = "register"
    DEREGISTER = "deregister"
