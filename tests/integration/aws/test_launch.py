"""One instance, whatever response is lost and whichever process is killed; and the request that EC2 receives."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import CloudOutcomeUnknownError, InstanceNotFoundError, InvalidCloudRequestError
from lcm.cloud.types import InstanceSelection
from tests.support.aws import child_process
from tests.support.aws.conformance import RUN

if TYPE_CHECKING:
    import subprocess

    from tests.support.aws.conformance_aws import AwsBed

RETRIES = 6


def bury(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def test_replies_lost_at_every_retry_leave_one_instance(bed: AwsBed) -> None:
    """Each attempt is made by a controller that knows nothing but the stored parameters."""
    parameters = bed.parameters("w1")
    bed.lose_replies(RETRIES)
    for _ in range(RETRIES):
        restarted = bed.another_provider()
        with pytest.raises(CloudOutcomeUnknownError):
            await restarted.launch_instance(parameters)
        await restarted.close()
        assert len(await bed.live_instances()) == 1
    found = await bed.cloud.find_launched(bed.region, "w1")
    instance = await bed.cloud.launch_instance(parameters)
    assert list(found.instances) == [instance.id] == await bed.live_instances()
    assert bed.calls()[RUN] == RETRIES + 1


async def test_a_launched_instance_answers_only_to_metadata_requests_with_a_token(bed: AwsBed) -> None:
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    options = bed.ec2.get_instance(instance.id).metadata_options
    assert (options.http_tokens, int(options.http_put_response_hop_limit)) == ("required", 1)


async def test_a_process_killed_after_its_launch_was_carried_out_leaves_one_instance(bed: AwsBed) -> None:
    parameters = bed.parameters("w1")
    carried_out = bed.server.hold(RUN, after=True, times=1)
    child = child_process.start("launch", json.dumps(parameters.to_json()), bed.server.url)
    try:
        await bed.eventually(lambda: carried_out.arrived == 1, "the launch has been carried out")
    finally:
        bury(child)
    carried_out.release()
    found = await bed.cloud.find_launched(bed.region, "w1")
    assert list(found.instances) == await bed.live_instances()
    assert len(found.instances) == 1
    instance = await bed.cloud.launch_instance(parameters)
    assert [instance.id] == await bed.live_instances()


async def test_a_launch_that_arrives_after_its_replay_leaves_one_instance(bed: AwsBed) -> None:
    """The request of the killed process is still in transit when its successor finds nothing and replays."""
    parameters = bed.parameters("w1")
    on_its_way = bed.server.hold(RUN, times=1)
    child = child_process.start("launch", json.dumps(parameters.to_json()), bed.server.url)
    try:
        await bed.eventually(lambda: on_its_way.arrived == 1, "the launch has been sent")
    finally:
        bury(child)
    assert not (await bed.cloud.find_launched(bed.region, "w1")).instances
    instance = await bed.cloud.launch_instance(parameters)
    on_its_way.release()
    await bed.eventually(lambda: on_its_way.done, "the first request has been carried out")
    assert await bed.live_instances() == [instance.id]


async def test_the_request_has_everything_that_was_stored(bed: AwsBed) -> None:
    group = bed.ec2.create_security_group("cml", "workers", vpc_id=bed.ec2.get_subnet(bed.subnets[0]).vpc_id)
    parameters = replace(bed.parameters("w1"), root_volume_gb=200, security_group_ids=(group.id,))
    instance = await bed.cloud.launch_instance(parameters)
    made = bed.ec2.get_instance(instance.id)
    assert [one.id for one in made.security_groups] == [group.id]
    (volume,) = [block for _, block in made.get_block_device_mapping]
    assert volume.size == 200
    assert bed.ec2.tags[volume.volume_id] == dict(parameters.tags)
    (form,) = [form for form in bed.server.forms if form.get("Action") == RUN]
    assert (form["MinCount"], form["MaxCount"]) == ("1", "1")
    assert form["ClientToken"] == parameters.client_token
    keys = [form[name] for name in sorted(form) if name.startswith("TagSpecification.1.Tag.") and name.endswith(".Key")]
    assert keys == sorted(parameters.tags)


async def test_a_replay_sends_the_very_same_request(bed: AwsBed) -> None:
    parameters = replace(bed.parameters("w1"), root_volume_gb=100)
    shuffled = replace(parameters, tags=dict(reversed(list(parameters.tags.items()))))
    first = await bed.cloud.launch_instance(parameters)
    restarted = bed.another_provider()
    assert (await restarted.launch_instance(shuffled)).id == first.id
    await restarted.close()
    one, other = [form for form in bed.server.forms if form.get("Action") == RUN]
    assert one == other


async def test_a_root_volume_of_an_unknown_image_is_refused(bed: AwsBed) -> None:
    parameters = replace(bed.parameters("w1"), root_volume_gb=100, image_id="ami-0123456789abcdef0")
    with pytest.raises(InvalidCloudRequestError):
        await bed.cloud.launch_instance(parameters)
    assert RUN not in bed.calls()


async def test_concurrent_mutations_are_sent_together(bed: AwsBed) -> None:
    launched = [await bed.cloud.launch_instance(bed.parameters(f"w{number}")) for number in range(4)]
    ids = [instance.id for instance in launched]
    await bed.eventually(lambda: all(bed.state(one) == "running" for one in ids), "all run")
    unknown = "i-0123456789abcdef0"
    asked = [bed.cloud.terminate_instance(bed.region, one) for one in [*ids, unknown]]
    *states, refused = await asyncio.gather(*asked, return_exceptions=True)
    assert {str(state) for state in states} == {"InstanceState.SHUTTING_DOWN"}
    assert isinstance(refused, InstanceNotFoundError)
    assert await bed.live_instances() == []
    sweep = await bed.cloud.sweep(bed.region, InstanceSelection())
    assert sorted(sweep.instances) == sorted(ids)
