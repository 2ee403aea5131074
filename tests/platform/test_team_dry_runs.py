"""Dry runs of `lcm teams` say what changes, and the commands then do that."""

from __future__ import annotations

import pytest

from lcm.cli.commands.admin import teams
from lcm.cli.errors import UsageError
from tests.platform.test_dry_runs import a_session, tried
from tests.support.virtual.fleet import a_fleet


async def test_members_and_limits_of_a_team(capsys: pytest.CaptureFixture[str]) -> None:
    async with a_fleet() as fleet:
        await teams.create_team(a_session(fleet, dry_run=False), "blue", learner=["bob@example.org"], max_lablets=3)

        added = await tried(
            fleet, teams.add_members, "blue", instructor_group=["teachers"], learner=["ann@example.org"]
        )
        assert [text for _, text in added.lines] == [
            "ann@example.org will be a learner",
            "group teachers will be an instructor",
        ]
        removed = await tried(fleet, teams.remove_member, "blue", "bob@example.org", yes=True)
        assert removed["blue"] == "bob@example.org will lose access to everything of blue. Their lablets stay."
        edited = await tried(fleet, teams.edit_team, "blue", rename="green", max_lablets=4, max_lifetime="90m")
        assert [text for _, text in edited.lines] == [
            "name: blue → green",
            "lablets at once: 3 → 4",
            "max lifetime: no limit → 1h30m",
        ]
        team = await fleet.people.teams.get("green")
        assert {each.email or each.group for each in team.members} == {"teachers", "ann@example.org"}
        assert (team.limits.max_lablets, team.limits.max_lifetime_minutes) == (4, 90.0)

        same = await tried(fleet, teams.edit_team, "green", max_lablets=4)
        assert same["green"] == "no change needed"
        assert (await fleet.people.teams.get("green")).version == team.version
        with pytest.raises(UsageError, match="nothing to change; pass at least one option"):
            await teams.edit_team(a_session(fleet, dry_run=False), "green")

        deleted = await tried(fleet, teams.delete_team, "green", yes=True)
        assert "unless definitions, lablets, bookings or workers still belong to it" in deleted["green"]
        capsys.readouterr()
