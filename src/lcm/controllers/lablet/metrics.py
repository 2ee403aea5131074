"""What a lablet controller counts: for people at /admin/stats, for Prometheus under the same names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from lcm.model.lablet.status import LabletStatus as Status

PREFIX: Final = "lcm_lablet_controller"


@dataclass(slots=True)
class Counters:
    """Since the process began."""

    labs_imported_count: int = 0
    labs_deleted_count: int = 0
    lablets_running_count: int = 0
    lablets_terminated_count: int = 0
    lablets_expired_count: int = 0
    lablets_failed_count: int = 0
    lablets_rescheduled_count: int = 0
    sweeps_count: int = 0
    strays_removed_count: int = 0

    def became(self, before: Status, after: Status) -> None:
        """A lablet went from one status to another."""
        if after is before:
            return
        match after:
            case LabletStatus.RUNNING:
                self.lablets_running_count += 1
            case LabletStatus.TERMINATED:
                self.lablets_terminated_count += 1
            case LabletStatus.EXPIRED:
                self.lablets_expired_count += 1
            case LabletStatus.FAILED:
                self.lablets_failed_count += 1
            case LabletStatus.PENDING_SCHEDULING:
                self.lablets_rescheduled_count += 1

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)
