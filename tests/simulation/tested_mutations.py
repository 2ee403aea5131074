"""Deliberate faults that the simulation has no means to find: each names the test that finds it; see `mutations`."""

from __future__ import annotations

from tests.simulation.mutation import Mutation

TESTED_MUTATIONS = (
    Mutation(
        "a client that was made while the metadata service was silent is kept",
        "cloud/aws/clients.py",
        "    if session.get_credentials() is None:\n",
        "    if False:\n",
        test="tests/integration/aws/test_credentials.py",
    ),
    Mutation(
        "the instance of a failed worker costs nothing",
        "model/worker/cost.py",
        "    if worker.status in (WorkerStatus.FAILED, WorkerStatus.TERMINATING):\n",
        "    if worker.status is WorkerStatus.TERMINATING:\n",
        test="tests/unit/model/worker/test_cost.py"
        "::test_a_failed_or_terminating_worker_costs_its_disks_only_if_its_instance_was_seen_stopped",
    ),
    Mutation(
        "ended lablets are kept forever",
        "wiring/control_plane.py",
        '            "lablets": lambda: remove_ended_lablets(',
        '            "lablets": lambda: (lambda *_: __import__("asyncio").sleep(0, 0))(',
        test="tests/unit/control_plane/lablets/test_retention.py"
        "::test_each_control_plane_removes_them_with_its_other_maintenance",
    ),
    Mutation(
        "that there is no image is cached",
        "cloud/aws/images.py",
        "            if images:\n                self._found",
        "            if True:\n                self._found",
        test="tests/contract/cloud/test_images.py::test_an_image_that_was_just_published_is_found",
    ),
    Mutation(
        "term 0 is accepted",
        "control_plane/http/deps.py",
        "    if not x_lcm_controller or term < FIRST_TERM:\n",
        "    if not x_lcm_controller or not x_lcm_leader_term:\n",
        test="tests/unit/control_plane/http/test_api.py::test_term_0_is_no_term_of_a_leader",
    ),
    Mutation(
        "what a clock that was set back measures is dropped",
        "control_plane/records/unit_of_work.py",
        "        return moment < newest <= (self.sent_at or now)\n",
        "        return moment < newest\n",
        test="tests/platform/test_clock_jumps.py::test_explanations_and_metrics_are_kept_while_the_clock_is_behind",
    ),
    Mutation(
        "a store that does not respond is available",
        "control_plane/store/write_probe.py",
        '        return f"no response to a write for {silence:.0f} s" if silence >= _MAX_SILENCE else ""\n',
        '        return ""\n',
        test="tests/integration/control_plane/test_readiness.py::test_a_mongod_that_does_not_respond_is_known",
    ),
    Mutation(
        "a store that refuses writes is available",
        "control_plane/store/write_probe.py",
        "                self._problem = str(error)\n",
        "                self._problem = str(error) and ''\n",
        test="tests/integration/control_plane/test_readiness.py::test_a_disk_without_room_is_known",
    ),
    Mutation(
        "the CML simulator cannot download a lab",
        "cml/simulator/http/labs.py",
        '    Route("/labs/{lab_id}/download", download_lab),\n',
        "",
        test="tests/integration/cml/test_virlutils.py::test_its_commands_work",
    ),
    Mutation(
        "what a leader remembers of a worker outlives it",
        "controllers/worker/memory.py",
        "            del self._memories[worker_id]\n",
        "            pass\n",
        test="tests/unit/controllers/worker/test_memory.py::test_what_is_remembered_of_a_worker_ends_with_it",
    ),
)
