"""Checks of AWS: the account, read permissions, the image to launch, and permission to make changes.

Changes are checked with EC2 dry runs, which are authorized but not carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.config.check import Finding
from lcm.model.worker.template import DEFAULT_TEMPLATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from lcm.cloud.types import Image, Sweep
    from lcm.model.worker.template import WorkerTemplate
    from lcm.settings import CloudSettings
    from lcm.wiring.aws_permissions import DryRunResult, PermissionChecker
    from lcm.wiring.worker_controller import CloudConnection, WorkerControllerComponentSettings

_POLICY_REMEDY = "grant the permissions in deploy/iam-policy.json"
_IMAGES_REMEDY = "share one, or set AMI_NAME_PATTERN and AMI_OWNERS"
_REGION_REMEDY = "fix this region in AWS_REGION_CONFIGS"
_DRY_RUN_IGNORED_REMEDY = "this endpoint ignores DryRun: review what it changed, and do not run this check on it again"
_NESTED_REMEDY = "use a type that does, such as m8i.2xlarge, or set nested_virtualization to false"
_ACTION_NAMES = {"StartInstances": "starting", "StopInstances": "stopping", "TerminateInstances": "terminating"}


async def check_cloud(settings: CloudSettings, *, plane_answers: bool = False) -> AsyncIterator[Finding]:
    """Check the account and its permissions in each region."""
    from lcm.wiring.connections import InvalidSettingsError
    from lcm.wiring.worker_controller import MissingExtraError, WorkerControllerComponentSettings, connect_aws

    assert isinstance(settings, WorkerControllerComponentSettings)
    if settings.cloud_provider == "simulated":
        yield Finding("AWS", True, "not needed: the cloud is simulated")
        return
    try:
        cloud = connect_aws(settings)
    except MissingExtraError as error:
        yield Finding("AWS", False, str(error), "pip install 'lcm-fleet[aws]'")
        return
    except InvalidSettingsError as error:
        yield Finding("AWS", False, str(error), "AWS_REGION_CONFIGS is the path of a YAML file, or JSON")
        return
    try:
        template = await _template_to_check(settings) if plane_answers else DEFAULT_TEMPLATES[0]
        nested = await _nested_templates(settings) if plane_answers else _with_nested(DEFAULT_TEMPLATES)
        for region in cloud.provider.regions:
            async for finding in _check_region(settings, cloud, region, template):
                yield finding
            async for finding in check_nested_virtualization(cloud, region, nested):
                yield finding
    finally:
        await cloud.close()


async def _template_to_check(settings: WorkerControllerComponentSettings) -> WorkerTemplate:
    """A template in use, if the control plane knows one; else the smallest built-in template."""
    from lcm.client.errors import ClientError, NotFoundError
    from lcm.wiring.controllers import make_control_plane_client

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
        pass  # it responded a moment ago, and another check reports whether it does
    return DEFAULT_TEMPLATES[0]


def _with_nested(templates: Iterable[WorkerTemplate]) -> list[WorkerTemplate]:
    return [template for template in templates if template.enabled and template.nested_virtualization]


async def _nested_templates(settings: WorkerControllerComponentSettings) -> list[WorkerTemplate]:
    """The enabled templates with nested virtualization: those of the control plane, or else the built-in ones."""
    from lcm.client.errors import ClientError
    from lcm.wiring.controllers import make_control_plane_client

    try:
        async with make_control_plane_client(settings) as client:
            return _with_nested([template async for template in client.internal.templates()])
    except ClientError:
        return _with_nested(DEFAULT_TEMPLATES)


async def check_nested_virtualization(
    cloud: CloudConnection, region: str, templates: Sequence[WorkerTemplate]
) -> AsyncIterator[Finding]:
    """Whether EC2 offers nested virtualization for the instance types of these templates."""
    from lcm.cloud.errors import CloudError

    if not templates:
        return
    part = f"AWS {region}"
    try:
        known = await cloud.provider.instance_types(region, {template.instance_type for template in templates})
    except CloudError as error:
        yield Finding(part, False, str(error), _POLICY_REMEDY)
        return
    supported = []
    for template in templates:
        described = f"template {template.name} ({template.instance_type})"
        offered = known.get(template.instance_type)
        if offered is None:
            message = f"{described} cannot be launched: {region} does not offer this instance type"
            yield Finding(part, True, message, note=True)
        elif offered.nested_virtualization:
            supported.append(described)
        else:
            message = f"{described}: this instance type does not support nested virtualization"
            yield Finding(part, False, message, _NESTED_REMEDY)
    if supported:
        yield Finding(part, True, f"nested virtualization is supported: {', '.join(supported)}")


async def _check_region(
    settings: WorkerControllerComponentSettings, cloud: CloudConnection, region: str, template: WorkerTemplate
) -> AsyncIterator[Finding]:
    from lcm.cloud.errors import CloudError
    from lcm.cloud.types import InstanceSelection

    part, provider = f"AWS {region}", cloud.provider
    try:
        account = await provider.account_id(region)
    except CloudError as error:
        remedy = "provide AWS credentials: AWS_PROFILE, a role, or environment variables"
        yield Finding(part, False, str(error), remedy)
        return
    yield Finding(part, True, f"calls run as account {account}")
    sweep = await provider.sweep(region, InstanceSelection())
    problems = await _check_reads(cloud, region, sweep)
    for problem in problems:
        yield Finding(part, False, problem, _POLICY_REMEDY)
    if not problems:
        yield Finding(part, True, f"reading is allowed; {len(sweep.instances)} managed instances")
    images: Sequence[Image] = ()
    patterns = dict.fromkeys((settings.ami_name_pattern, template.ami_name_pattern or settings.ami_name_pattern))
    for pattern in patterns:
        images_text = f"{pattern} of {', '.join(settings.ami_owners)}"
        try:
            images = await provider.find_images(region, pattern, settings.ami_owners)
        except CloudError as error:
            images = ()
            yield Finding(part, False, str(error), _POLICY_REMEDY)
            continue
        if images:
            yield Finding(part, True, f"{images[0].name} ({images[0].id}) is the newest image like {images_text}")
        else:
            yield Finding(part, False, f"no image like {images_text}", _IMAGES_REMEDY)
    async for finding in _check_changes(cloud, region, template, images, sweep):
        yield finding


async def _check_reads(cloud: CloudConnection, region: str, sweep: Sweep) -> list[str]:
    """Problems with read permissions."""
    from lcm.cloud.errors import CloudError
    from lcm.wiring.aws_permissions import NONEXISTENT_INSTANCE

    problems = [] if sweep.complete else [sweep.error or "instances cannot be listed"]
    for request in (cloud.provider.health(region), cloud.metrics.get_instance_metrics(region, [NONEXISTENT_INSTANCE])):
        try:
            await request
        except CloudError as error:
            problems.append(str(error))
    return problems


async def _check_changes(
    cloud: CloudConnection, region: str, template: WorkerTemplate, images: Sequence[Image], sweep: Sweep
) -> AsyncIterator[Finding]:
    part = f"AWS {region}"
    assert cloud.permissions is not None
    permissions = cloud.permissions(region)
    problem = await permissions.check_dry_run_support()
    if problem is not None:
        yield Finding(part, True, f"permission to make changes was not checked: {problem}", note=True)
        return
    if images:
        async for finding in _check_launches(cloud, permissions, region, template, images[0]):
            yield finding
    else:
        yield Finding(part, True, "permission to launch was not checked: there is no image", note=True)
    async for finding in _check_instance_actions(permissions, part, sweep):
        yield finding


async def _check_launches(
    cloud: CloudConnection, permissions: PermissionChecker, region: str, template: WorkerTemplate, image: Image
) -> AsyncIterator[Finding]:
    """One finding for all subnets that pass, and one for each that does not."""
    from lcm.wiring.aws_permissions import DryRunOutcome, LaunchCheck, check_launches

    part, allowed = f"AWS {region}", []
    async for subnet, trial in check_launches(permissions, LaunchCheck(cloud.sites[region], template, image.id)):
        where = f"into {subnet or 'the default subnet'}"
        if trial.outcome is DryRunOutcome.ALLOWED:
            allowed.append(where)
        else:
            yield _denied_finding(part, f"launching {where}", trial)
    if allowed:
        what = f"template {template.name} ({template.instance_type}) from {image.id}, with tags"
        yield Finding(part, True, f"launching is allowed: {what}, {', '.join(allowed)}")


async def _check_instance_actions(permissions: PermissionChecker, part: str, sweep: Sweep) -> AsyncIterator[Finding]:
    """Check start, stop and terminate. Only a managed instance is conclusive: policies may depend on its tags."""
    from lcm.wiring.aws_permissions import NONEXISTENT_INSTANCE, DryRunOutcome, check_instance_actions

    instance_id, trials = await check_instance_actions(permissions, sweep.instances.values())
    managed = instance_id != NONEXISTENT_INSTANCE
    allowed, unknown = [], []
    for trial in trials:
        doing = _ACTION_NAMES[trial.operation]
        if trial.outcome is DryRunOutcome.ALLOWED:
            allowed.append(doing)
        elif managed or trial.outcome is DryRunOutcome.EXECUTED:
            yield _denied_finding(part, f"{doing} {instance_id}", trial)
        else:
            unknown.append(doing)
    if allowed:
        instance_text = f"checked with {instance_id}" if managed else "checked with an instance that does not exist"
        yield Finding(part, True, f"allowed: {', '.join(allowed)} ({instance_text})")
    if unknown:
        message = f"cannot be checked without a managed instance: whether {', '.join(unknown)} is allowed"
        yield Finding(part, True, message, note=True)


def _denied_finding(part: str, what: str, trial: DryRunResult) -> Finding:
    from lcm.wiring.aws_permissions import DryRunOutcome

    if trial.outcome is DryRunOutcome.DENIED:
        remedy = f"allow {trial.missing_action}, as deploy/iam-policy.json does"
        return Finding(part, False, f"not allowed: {what}: {trial.message}", remedy)
    if trial.outcome is DryRunOutcome.MISCONFIGURED:
        return Finding(
            part, False, f"{what} would be rejected: {trial.message}", "fix this region in AWS_REGION_CONFIGS"
        )
    if trial.outcome is DryRunOutcome.EXECUTED:
        return Finding(part, False, f"{what}: {trial.message}, although it was a dry run", _DRY_RUN_IGNORED_REMEDY)
    return Finding(part, True, f"whether {what} is allowed could not be determined: {trial.message}", note=True)
