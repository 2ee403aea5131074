"""Conditions and sort order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import Delete, Sort, Where
from tests.support.records.store_documents import KINDS, NOTES, WORKERS, ids, pages, revision, worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue, Put, Store


async def fill(store: Store, values: list[FieldValue]) -> None:
    """Documents 0, 1, … with these names."""
    await store.commit([worker(str(number), name=value) for number, value in enumerate(values)])


async def test_any_of_and_none_of(store: Store) -> None:
    await fill(store, ["a", "b", None, 1, True, 0, False, ""])
    expected: list[tuple[tuple[FieldValue, ...], str]] = [
        (("a", "b"), "01"),
        (("a",), "0"),
        ((None,), "2"),
        ((1,), "3"),
        ((True,), "4"),
        ((1.0, False), "36"),
        (("",), "7"),
        ((None, "a", "zzz"), "02"),
        ((), ""),
    ]
    for values, found in expected:
        assert await ids(store, Where(any_of={"name": values})) == list(found), values
        others = [number for number in "01234567" if number not in found]
        assert await ids(store, Where(none_of={"name": values})) == others, values


async def test_either_field_may_have_one_of_its_values(store: Store) -> None:
    for number, (name, region) in enumerate([("a", "x"), ("b", "y"), ("c", "x"), (None, "z")]):
        await store.commit([worker(str(number), name=name, region=region)])
    expected: list[tuple[dict[str, list[FieldValue]], str]] = [
        ({"name": ["a", "b"]}, "01"),
        ({"name": ["b"], "region": ["x"]}, "012"),
        ({"name": [None], "region": []}, "3"),
        ({"name": [], "region": []}, ""),
        ({}, "0123"),
    ]
    for either, found in expected:
        assert await ids(store, Where(either=either)) == list(found), either
        counted = await store.count_by(WORKERS, ["region"], Where(either=either))
        assert sum(number for _, number, _ in counted) == len(found), either
    assert await ids(store, Where(any_of={"region": ["x"]}, either={"name": ["a", "b"]})) == ["0"]
    with pytest.raises(ValueError, match="declares no field"):
        await store.find(WORKERS, Where(either={"shape": ["x"]}))


async def test_at_least_and_below_compare_values_of_one_type(store: Store) -> None:
    await fill(store, [None, -1, 0, 2.5, 3, "", "a", "b", False, True])
    assert await ids(store, Where(at_least={"name": 0})) == ["2", "3", "4"]
    assert await ids(store, Where(below={"name": 2.5})) == ["1", "2"]
    assert await ids(store, Where(at_least={"name": "a"})) == ["6", "7"]
    assert await ids(store, Where(below={"name": "b"})) == ["5", "6"]
    assert await ids(store, Where(at_least={"name": False})) == ["8", "9"]
    assert await ids(store, Where(below={"name": True})) == ["8"]
    assert await ids(store, Where(at_least={"name": 0}, below={"name": 3})) == ["2", "3"]
    with pytest.raises(ValueError, match="None"):
        await store.find(WORKERS, Where(at_least={"name": None}))


async def test_contains_is_literal_and_ignores_case(store: Store) -> None:
    await fill(
        store, ["Alpha-1", "100%", "a_c", "abc", "a.c", "[x](y)*+?^$|\\", "STRASSE Ä", "a\nb", None, 12, "x'y\"z"]
    )
    expected = {
        "ALPHA": "0",
        "a-1": "0",
        "%": "1",
        "0%": "1",
        "a_c": "2",
        "A.C": "4",
        "a": "0 2 3 4 6 7",
        "[X]": "5",
        "(y)*+?^$|\\": "5",
        "ä": "6",
        "straße": "6",
        "\n": "7",
        "1": "0 1",
        "'y\"": "10",
        "": "0 1 2 3 4 5 6 7 10",
        "none": "",
        "12": "",
    }
    for text, found in expected.items():
        assert sorted(await ids(store, Where(contains={"name": text})), key=int) == found.split(), text


async def test_contains_all_requires_each_of_the_texts(store: Store) -> None:
    await fill(store, ["alpha\nEU-west-1\nowner=ann", "alpha\nus-east-1", "bravo\neu-west-1\nowner=Ann", None, 12])
    expected: list[tuple[tuple[str, ...], str]] = [
        (("ALPHA",), "0 1"),
        (("alpha", "eu-west"), "0"),
        (("owner=ann", "eu"), "0 2"),
        (("a.", "a"), ""),
        (("alpha", "bravo"), ""),
        ((), "0 1 2 3 4"),
    ]
    for texts, found in expected:
        where = Where(contains_all={"name": texts})
        assert await ids(store, where) == found.split(), texts
        assert sum(count for _, count, _ in await store.count_by(WORKERS, ["status"], where)) == len(found.split())


async def test_a_search_keeps_to_the_other_conditions(store: Store) -> None:
    """The text has an index of its own, which the archived documents are excluded by."""
    await store.commit(
        [
            worker("a", text="alpha\nEU", status="up", cost=2),
            worker("b", text="alpha\neu", status="gone", cost=1),
            worker("c", text="bravo\neu", status="up", cost=1),
            worker("d", text=None, status="up", cost=0),
            worker("e", text="alpha\neu", status="down", cost=1),
        ]
    )
    present: dict[str, list[FieldValue]] = {"status": ["gone"]}
    for where, found in (
        (Where(contains_all={"text": ["alpha", "eu"]}), "e b a"),
        (Where(none_of=present, contains_all={"text": ["alpha"]}), "e a"),
        (Where(none_of=present, any_of={"status": ["up"]}, contains_all={"text": ["eu"]}), "c a"),
        (Where(any_of={"text": [None]}), "d"),
        (Where(none_of=present, contains_all={"text": []}), "d c e a"),
    ):
        page = await store.find(WORKERS, where, sort=Sort("cost"))
        costs = sorted(found.split(), key="dbcea".index)
        assert [item.id for item in page.items] == costs, where
        assert sum(count for _, count, _ in await store.count_by(WORKERS, ["status"], where)) == len(costs)
    await store.commit([worker("a", await revision(store, WORKERS, "a"), text="changed", status="up", cost=2)])
    assert await ids(store, Where(contains_all={"text": ["changed"]})) == ["a"]
    assert await ids(store, Where(none_of=present, contains_all={"text": ["alpha"]})) == ["e"]


async def test_a_page_can_be_reached_by_its_number(store: Store) -> None:
    await fill(store, [f"n{number}" for number in range(7)])
    for descending in (False, True):
        sort = Sort("name", descending=descending)
        everything = [item.id for item in (await store.find(WORKERS, sort=sort)).items]
        third = await store.find(WORKERS, sort=sort, skip=4, limit=2)
        assert [item.id for item in third.items] == everything[4:6]
        assert third.next_cursor is not None
        rest = await store.find(WORKERS, sort=sort, after=third.next_cursor, limit=2)
        assert ([item.id for item in rest.items], rest.next_cursor) == (everything[6:], None)
        beyond = await store.find(WORKERS, sort=sort, skip=7, limit=2)
        assert (list(beyond.items), beyond.next_cursor) == ([], None)


async def test_all_conditions_must_be_true(store: Store) -> None:
    await store.commit(
        [
            worker("a", name="one", status="up", cost=1),
            worker("b", name="one", status="down", cost=2),
            worker("c", name="two", status="up", cost=3),
        ]
    )
    both = Where(any_of={"status": ["up"]}, at_least={"cost": 1}, contains={"name": "o"}, none_of={"name": ["two"]})
    assert await ids(store, both) == ["a"]


async def test_order_is_none_numbers_text_booleans_then_id(store: Store) -> None:
    values: list[FieldValue] = [True, "b", "B", "ä", "", 10, 9.5, -3, None, False, None, "b"]
    await fill(store, values)
    ascending = ["10", "8", "7", "6", "5", "4", "2", "1", "11", "3", "9", "0"]
    assert await ids(store, sort=Sort("name")) == ascending
    assert await ids(store, sort=Sort("name", descending=True)) == ascending[::-1]
    for limit in (1, 2, 5):
        for sort in (Sort("name"), Sort("name", descending=True)):
            found = [item.id for page in await pages(store, sort=sort, limit=limit) for item in page.items]
            assert found == (ascending[::-1] if sort.descending else ascending)


async def test_without_a_field_order_is_by_id(store: Store) -> None:
    await store.commit([worker(name) for name in ("b", "a", "B", "ä", "aa", "z")])
    assert await ids(store) == ["B", "a", "aa", "b", "z", "ä"]
    assert await ids(store, sort=Sort(descending=True)) == ["ä", "z", "b", "aa", "a", "B"]


async def test_a_changed_document_is_found_by_its_new_values(store: Store) -> None:
    await store.commit([worker("a", status="up", name="Old"), worker("b", status="up")])
    await store.commit([worker("a", await revision(store, WORKERS, "a"), status="down", name="New")])
    assert await ids(store, Where(any_of={"status": ["up"]})) == ["b"]
    assert await ids(store, Where(contains={"name": "new"})) == ["a"]
    assert await ids(store, Where(contains={"name": "old"})) == []
    await store.commit([Delete(WORKERS, "a", await revision(store, WORKERS, "a"))])
    assert await ids(store) == ["b"]


async def test_only_declared_fields_can_be_queried(store: Store) -> None:
    for call in (
        store.find(WORKERS, Where(any_of={"other": [1]})),
        store.find(WORKERS, Where(contains={"other": "1"})),
        store.find(WORKERS, Where(contains_all={"other": ["1"]})),
        store.find(WORKERS, Where(contains_all={"name": ["\0"]})),
        store.find(WORKERS, skip=-1),
        store.find(WORKERS, sort=Sort("other")),
        store.find(NOTES, sort=Sort("name")),
        store.count_by(WORKERS, ["other"]),
        store.count_by(WORKERS, ["status"], sums=["other"]),
        store.find(WORKERS, limit=0),
        store.find(WORKERS, limit=10_001),
    ):
        with pytest.raises(ValueError):
            await call


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(-2, 2, allow_nan=False).map(lambda number: round(number, 1)),
    st.text("aAbßäÄ%_.*\\", max_size=3),
)
BOUNDS = VALUES.filter(lambda value: value is not None)
FIELDS = st.sampled_from(["name", "cost"])
CONDITIONS = st.builds(
    Where,
    any_of=st.dictionaries(FIELDS, st.lists(VALUES, max_size=4), max_size=1),
    none_of=st.dictionaries(FIELDS, st.lists(VALUES, max_size=4), max_size=1),
    at_least=st.dictionaries(FIELDS, BOUNDS, max_size=1),
    below=st.dictionaries(FIELDS, BOUNDS, max_size=1),
    contains=st.dictionaries(FIELDS, st.text("aAbßäÄ%_.*\\", max_size=2), max_size=1),
    contains_all=st.dictionaries(FIELDS, st.lists(st.text("aAbßäÄ%_.*\\", max_size=2), max_size=2), max_size=1),
)
SORTS = st.builds(Sort, by=st.one_of(st.none(), FIELDS), descending=st.booleans())
DOCUMENTS = st.lists(st.tuples(VALUES, VALUES), max_size=12)


async def clear(store: Store) -> None:
    while items := (await store.find(WORKERS)).items:
        await store.commit([Delete(WORKERS, item.id, item.revision) for item in items])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, where=CONDITIONS, sort=SORTS, limit=st.integers(1, 5))
async def test_every_adapter_agrees_with_the_one_in_memory(
    store: Store, documents: list[tuple[FieldValue, FieldValue]], where: Where, sort: Sort, limit: int
) -> None:
    reference = MemoryStore()
    await reference.open(KINDS)
    writes: list[Put] = [worker(f"{n:02}", name=name, cost=cost) for n, (name, cost) in enumerate(documents)]
    await clear(store)
    for each in (store, reference):
        await each.commit(writes)
    found, expected = [
        [[item.id for item in page.items] for page in await pages(each, where, sort, limit=limit)]
        for each in (store, reference)
    ]
    assert found == expected
    groups, counted = [
        [(repr(values), count) for values, count, _ in await each.count_by(WORKERS, ["name"], where)]
        for each in (store, reference)
    ]
    assert [count for _, count in groups] == [count for _, count in counted]
