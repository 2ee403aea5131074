"""What a leader remembers about a lablet between passes."""

from __future__ import annotations

import asyncio

from lcm.controllers.lablet.decide.decision import LabOperation
from lcm.controllers.lablet.memory import IMPORT_GRACE_SECONDS, REPEAT_DELAY_SECONDS, LabletMemories
from lcm.model.worker.conditions import ConditionStatus
from tests.support.records.workers import NOW
from tests.unit.controllers.lablet.builders import a_lablet, a_ready_worker, ago, cml_ready_condition


async def test_an_import_of_a_former_leader_may_complete_for_a_while() -> None:
    memories = LabletMemories()
    memory = memories.get(a_lablet("INSTANTIATING"))
    assert memory.import_may_complete
    await asyncio.sleep(IMPORT_GRACE_SECONDS)
    assert not memory.import_may_complete
    assert not LabletMemories().get(a_lablet("INSTANTIATING", lab_id="lab-1")).import_may_complete
    assert not LabletMemories().get(a_lablet("SCHEDULED")).import_may_complete
    assert LabletMemories().get(a_lablet("STOPPING", lab_id=None)).import_may_complete


async def test_each_placement_has_its_own_memory() -> None:
    memories = LabletMemories()
    first = memories.get(a_lablet("SCHEDULED"))
    assert memories.get(a_lablet("INSTANTIATING")) is first, (
        "this leader wrote the status and has not sent an import yet"
    )
    assert not first.import_may_complete
    assert memories.get(a_lablet("SCHEDULED", placement_attempt=2)) is not first
    memories.keep_only([])
    assert memories.get(a_lablet("INSTANTIATING")).import_may_complete


async def test_an_accepted_operation_is_recent_for_a_while() -> None:
    memory = LabletMemories().get(a_lablet("STOPPING"))
    memory.last_error = "busy"
    memory.record_operation(LabOperation.STOP)
    assert (memory.recent_operations, memory.last_error) == (frozenset({"stop"}), "")
    await asyncio.sleep(REPEAT_DELAY_SECONDS + 1)
    assert memory.recent_operations == frozenset()


def test_a_worker_stays_not_ready_from_problem_to_problem() -> None:
    memory = LabletMemories().get(a_lablet("RUNNING"))
    assert memory.update_unready_since(a_ready_worker(), NOW) is None
    silent = a_ready_worker(conditions=cml_ready_condition(ConditionStatus.FALSE, since=300))
    assert memory.update_unready_since(silent, NOW) == ago(300)
    stopped = a_ready_worker(status="STOPPED", status_since=ago(20))
    assert memory.update_unready_since(stopped, NOW) == ago(300), "consecutive problems count as one"
    assert LabletMemories().get(a_lablet("RUNNING")).update_unready_since(stopped, NOW) == ago(20)
    assert memory.update_unready_since(a_ready_worker(), NOW) is None
