"""Lists of learners as people paste them from a mail program or a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from markupsafe import escape

from lcm.model.access import Role
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.web.calendar.test_bookings_page import FORM, book, bookings
from tests.unit.control_plane.web.calendar.test_bookings_page import plane as plane

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


@pytest.mark.parametrize(
    "pasted",
    [
        "ann@x.org\nben@x.org",
        "ann@x.org; ben@x.org;",
        "ann@x.org, ben@x.org,",
        'Ann Lee <ann@x.org>; "Ó Briain, Ben" <ben@x.org>',
        "\u200bann@x.org\r\n\r\n\u00a0ben@x.org\ufeff\r\n",
        "ann@x.org\tben@x.org",
        '"Lee, Ann" <ann@x.org>, "Ó Briain, Ben" <ben@x.org>',
        "ann@x.org, Ó Briain, Ben <ben@x.org>,",
    ],
)
async def test_each_address_of_a_pasted_list_gets_a_seat(plane: TestPlane, pasted: str) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    assert (await book(plane, operator, seats="3", learners=pasted)).learners == ("ann@x.org", "ben@x.org")


async def test_names_keep_their_commas(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator, seats="3", learners='Lee, Ann\nO\'Brien "Pat"; 🎓 Zoë')
    assert booking.learners == ("Lee, Ann", 'O\'Brien "Pat"', "🎓 Zoë")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("ann@x.org\nANN@x.org", "ANN@x.org is named twice"),
        ("ann@x.org ben@x.org", "ann@x.org ben@x.org: must be one name or e-mail address"),
        ("ann@x.org, bob", "ann@x.org, bob: must be one name or e-mail address"),
        ("Anna Lee (ann@x.org)", "Anna Lee (ann@x.org): must be one name or e-mail address"),
        ("ann@x.org Ben <ben@x.org>", "must be one name or e-mail address"),
        ("Ann, ann@x.org, Ben, ben@x.org", "must be one name or e-mail address"),
        ("a\nb\nc\nd", "4 are given for 3 seats"),
        (f"ann\n\n{'x' * 129}", "xxx…: must have at most 128 characters"),
    ],
)
async def test_what_is_wrong_with_a_list_names_the_person(plane: TestPlane, typed: str, problem: str) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    response = await operator.send("/bookings/new", {**FORM, "seats": "3", "learners": typed})
    assert response.status_code == 422
    assert problem in response.text
    assert escape(typed.splitlines()[0]) in response.text  # what was typed is kept
    assert await bookings(plane) == []
