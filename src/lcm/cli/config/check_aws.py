"""Trying AWS: who calls run as, what may be read, which image is launched, and whether changes would be allowed.

Changes are tried by requests that EC2 checks and does not carry out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.config.check import Finding
from lcm.model.worker.template import DEFAULT_TEMPLATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lcm.cloud.types import Image, Sweep
    from lcm.model.worker.template import WorkerTemplate
    from lcm.settings import CloudSettings
    from lcm.wiring.aws_permissions import DryRunResult, PermissionChecker
    from lcm.wiring.worker_controller import CloudConnection, WorkerControllerComponentSettings

_POLICY_REMEDY = "give the credentials what deploy/iam-policy.json lists"
_IMAGES_REMEDY = "share one, or set AMI_NAME_PATTERN and AMI_OWNERS"
_REGION_REMEDY = "mend this region in AWS_REGION_CONFIGS"
_DRY_RUN_IGNORED_REMEDY = "this endpoint does not keep to DryRun: see what it did, and do not check it again"
_ACTION_NAMES = {"StartInstances": "starting", "StopInstances": "stopping", "TerminateInstances": "terminating"}


async def check_cloud(settings: CloudSettings, *, plane_answers: bool = False) -> AsyncIterator[Finding]:
    """Which account calls run as, and what they are allowed, in each region."""
    from lcm.wiring.worker_controller import (
        InvalidSettingsError,
        MissingExtraError,
        WorkerControllerComponentSettings,
        connect_aws,
    )

    assert isinstance(settings, WorkerControllerComponentSettings)
    if settings.cloud_provider == "simulated":
        yield Finding("AWS", True, "not needed: the cloud is simulated")
        return
    try:
        cloud = connect_aws(settings)
    except MissingExtraError as error:
        yield Finding("AWS", False, str(error), "pip install 'lcm[aws]'")
        return
    except InvalidSettingsError as error:
        yield Finding("AWS", False, str(error), "AWS_REGION_CONFIGS is the path of a YAML file, or JSON")
        return
    try:
        template = await _template_to_check(settings) if plane_answers else DEFAULT_TEMPLATES[0]
        for region in cloud.provider.regions:
            async for finding in _check_region(settings, cloud, region, template):
                yield finding
    finally:
        await cloud.close()


async def _template_to_check(settings: WorkerControllerComponentSettings) -> WorkerTemplate:
    """One that workers are really made from, as far as the control plane tells; else the smallest of our own."""
    from lcm.client.errors import ClientError, NotFoundError
    from lcm.wiring.worker_controller import make_control_plane_client

    try:
        async with make_control_plane_client(settings) as client:
            names = [template.name for template in DEFAULT_TEMPLATES]
            async for worker in client.internal.workers(page_size=1):
                names = [worker.template_name, *names] if worker.template_name else names
                break
            for name in names:
                try:
                    template = await client.internal.template(name)
                except NotFoundError:
                    continue
                if template.enabled:
                    return template
    except ClientError:
        pass  # it answered a moment ago, and that it does is told elsewhere
    return DEFAULT_TEMPLATES[0]


async def _check_region(
    settings: WorkerControllerComponentSettings, cloud: CloudConnection, region: str, template: WorkerTemplate
) -> AsyncIterator[Finding]:
    from lcm.cloud.errors import CloudError
    from lcm.cloud.types import InstanceSelection

    part, provider = f"AWS {region}", cloud.provider
    try:
        account = await provider.account_id(region)
    except CloudError as error:
        remedy = "give it credentials as any program on boto3 has them: AWS_PROFILE, a role, or environment variables"
        yield Finding(part, False, str(error), remedy)
        return
    yield Finding(part, True, f"calls run as account {account}")
    sweep = await provider.sweep(region, InstanceSelection())
    troubles = await _check_reads(cloud, region, sweep)
    for trouble in troubles:
        yield Finding(part, False, trouble, _POLICY_REMEDY)
    if not troubles:
        yield Finding(part, True, f"reading is allowed; {len(sweep.instances)} of our instances")
    images: Sequence[Image] = ()
    patterns = dict.fromkeys((settings.ami_name_pattern, template.ami_name_pattern or settings.ami_name_pattern))
    for pattern in patterns:
        asked = f"{pattern} of {', '.join(settings.ami_owners)}"
        try:
            images = await provider.find_images(region, pattern, settings.ami_owners)
        except CloudError as error:
            images = ()
            yield Finding(part, False, str(error), _POLICY_REMEDY)
            continue
        if images:
            yield Finding(part, True, f"{images[0].name} ({images[0].id}) is the newest image like {asked}")
        else:
            yield Finding(part, False, f"no image like {asked}", _IMAGES_REMEDY)
    async for finding in _check_changes(cloud, region, template, images, sweep):
        yield finding


async def _check_reads(cloud: CloudConnection, region: str, sweep: Sweep) -> list[str]:
    """What may not be read."""
    from lcm.cloud.errors import CloudError
    from lcm.wiring.aws_permissions import NONEXISTENT_INSTANCE

    troubles = [] if sweep.complete else [sweep.trouble or "instances cannot be listed"]
    for look in (cloud.provider.health(region), cloud.metrics.get_instance_metrics(region, [NONEXISTENT_INSTANCE])):
        try:
            await look
        except CloudError as error:
            troubles.append(str(error))
    return troubles


async def _check_changes(
    cloud: CloudConnection, region: str, template: WorkerTemplate, images: Sequence[Image], sweep: Sweep
) -> AsyncIterator[Finding]:
    part = f"AWS {region}"
    assert cloud.permissions is not None
    permissions = cloud.permissions(region)
    trouble = await permissions.tries()
    if trouble is not None:
        yield Finding(part, True, f"whether changes are allowed was not tried: {trouble}", note=True)
        return
    if images:
        async for finding in _check_launches(cloud, permissions, region, template, images[0]):
            yield finding
    else:
        yield Finding(part, True, "whether launches are allowed was not tried: there is no image", note=True)
    async for finding in _check_instance_actions(permissions, part, sweep):
        yield finding


async def _check_launches(
    cloud: CloudConnection, permissions: PermissionChecker, region: str, template: WorkerTemplate, image: Image
) -> AsyncIterator[Finding]:
    """One finding for all subnets that are fine, and one for each that is not."""
    from lcm.wiring.aws_permissions import DryRunOutcome, LaunchCheck, check_launches

    part, fine = f"AWS {region}", []
    async for subnet, trial in check_launches(permissions, LaunchCheck(cloud.sites[region], template, image.id)):
        where = f"into {subnet or 'the default subnet'}"
        if trial.verdict is DryRunOutcome.ALLOWED:
            fine.append(where)
        else:
            yield _denied_finding(part, f"launching {where}", trial)
    if fine:
        what = f"template {template.name} ({template.instance_type}) from {image.id}, with tags"
        yield Finding(part, True, f"launching is allowed: {what}, {', '.join(fine)}")


async def _check_instance_actions(permissions: PermissionChecker, part: str, sweep: Sweep) -> AsyncIterator[Finding]:
    """Start, stop and terminate. Only an instance of ours tells for sure: policies may be bound to its tags."""
    from lcm.wiring.aws_permissions import NONEXISTENT_INSTANCE, DryRunOutcome, check_instance_actions

    instance_id, trials = await check_instance_actions(permissions, sweep.instances.values())
    ours = instance_id != NONEXISTENT_INSTANCE
    fine, untold = [], []
    for trial in trials:
        doing = _ACTION_NAMES[trial.operation]
        if trial.verdict is DryRunOutcome.ALLOWED:
            fine.append(doing)
        elif ours or trial.verdict is DryRunOutcome.MADE:
            yield _denied_finding(part, f"{doing} {instance_id}", trial)
        else:
            untold.append(doing)
    if fine:
        with_what = f"tried with {instance_id}" if ours else "tried with an instance that does not exist"
        yield Finding(part, True, f"allowed: {', '.join(fine)} ({with_what})")
    if untold:
        says = f"not told before an instance of ours is there: whether {', '.join(untold)} is allowed"
        yield Finding(part, True, says, note=True)


def _denied_finding(part: str, what: str, trial: DryRunResult) -> Finding:
    from lcm.wiring.aws_permissions import DryRunOutcome

    if trial.verdict is DryRunOutcome.FORBIDDEN:
        remedy = f"allow {trial.lacking}, as deploy/iam-policy.json does"
        return Finding(part, False, f"not allowed: {what}: {trial.answer}", remedy)
    if trial.verdict is DryRunOutcome.WRONG:
        return Finding(
            part, False, f"{what} would be refused: {trial.answer}", "mend this region in AWS_REGION_CONFIGS"
        )
    if trial.verdict is DryRunOutcome.MADE:
        return Finding(
            part, False, f"{what}: {trial.answer}, although it was only to be checked", _DRY_RUN_IGNORED_REMEDY
        )
    return Finding(part, True, f"whether {what} is allowed cannot be told: {trial.answer}", note=True)
