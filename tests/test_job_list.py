"""Lists of jobs: filters, orders, pages, and the cursor that all implementations of River exchange."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from river import Client, DatabaseError, JobRow, JobState, UndecodableJobError
from river.errors import InvalidCursorError, InvalidOptionError
from river.listing import AsyncJobListPage, JobListCursor, JobListing, JobListPage
from river.listing.where import where_of
from river.operation import run
from river.sql import dialect_for
from tests.support.clients import NATURAL_WAYS, Bench, Jobs, Way, call, jobs_of, made
from tests.support.handles import KINDS, Kind, opened, settle
from tests.test_operation import Script, job_row

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures/list_cursors.json").read_text())
NOBODY: Any = Client(None)
"""A client that has no database: what it refuses, it refuses before any statement."""

WAYS = [Way("Client", "ConnectionPool"), Way("AsyncClient", "AsyncEngine-asyncpg")]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)

SHORTEST = timedelta.resolution
LONGEST = timedelta(hours=1 << 31) - SHORTEST

FINAL = ["cancelled", "completed", "discarded"]
Lister = Callable[..., list[int]]


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


@contextmanager
def listing(database_url: str, schema: str) -> Iterator[Callable[..., JobListPage]]:
    """`job_list` on a connection of the test's."""
    with psycopg.connect(database_url) as connection:
        client = Client(None, schema=schema)
        yield lambda **options: client.job_list_tx(connection, **options)


@pytest.fixture
def page(database_url: str, schema: str) -> Iterator[Callable[..., JobListPage]]:
    with listing(database_url, schema) as page:
        yield page


@pytest.fixture
def ids(page: Callable[..., JobListPage]) -> Lister:
    """The ids of one page."""
    return lambda **options: [job.id for job in page(**options)]


@asynccontextmanager
async def bench_of(way: Way, database_url: str, schema: str) -> AsyncGenerator[Bench]:
    async with made(way, database_url, schema, queues={}) as bench:
        yield bench


async def all_ids(page: JobListPage | AsyncJobListPage) -> list[int]:
    """The ids of a page and of all that follow."""
    if isinstance(page, JobListPage):
        return [job.id for job in await call(lambda: list(page.all()))]
    return [job.id async for job in page.all()]


# The cursor.


def golden_job(job_id: int) -> JobRow:
    columns = next(job for job in GOLDEN["jobs"] if job["id"] == job_id)
    return run(Script([job_row(**columns)]), dialect_for("postgresql", None).job_list(JobListing.of({}))).jobs[0]


@pytest.mark.parametrize(
    "case", GOLDEN["cursors"], ids=lambda case: f"{case['order_by']}-{case['states']}-{case['id']}"
)
def test_a_cursor_is_the_text_that_go_writes_for_the_same_job(case: dict[str, Any]) -> None:
    asked = JobListing.of({"order_by": case["order_by"], "states": case["states"]})
    cursor = asked.cursor_of(golden_job(case["id"]))
    assert str(cursor) == case["text"]
    parsed = JobListCursor.parse(case["text"])
    assert (parsed.id, parsed.kind, parsed.queue, parsed.sort_field) == (
        cursor.id,
        cursor.kind,
        cursor.queue,
        cursor.sort_field,
    )
    assert str(parsed) == case["text"]
    assert asked.going_on(parsed).after_time == asked.going_on(cursor).after_time


def test_the_golden_cursors_have_every_order_and_both_letters_of_the_url_safe_alphabet() -> None:
    assert {case["order_by"] for case in GOLDEN["cursors"]} == {"id", "scheduled_at", "finalized_at", "time"}
    texts = "".join(case["text"] for case in GOLDEN["cursors"])
    assert "-" in texts
    assert "_" in texts
    assert "=" in texts


def cursor_text(**members: Any) -> str:
    document = {"id": 1, "kind": "k", "queue": "q", "sort_field": "id", "time": "0001-01-01T00:00:00Z", **members}
    document = {name: value for name, value in document.items() if value is not ...}
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize("spelled", [str.strip, lambda text: text.rstrip("="), lambda text: f" {text}\n"])
def test_a_cursor_is_read_in_either_alphabet_and_with_or_without_padding(spelled: Callable[[str], str]) -> None:
    golden = next(case["text"] for case in GOLDEN["cursors"] if "-" in case["text"] and "_" in case["text"])
    expected = JobListCursor.parse(golden)
    assert JobListCursor.parse(spelled(golden)) == expected
    assert JobListCursor.parse(spelled(golden.translate(str.maketrans("-_", "+/")))) == expected


def test_a_cursors_time_may_be_written_in_any_zone() -> None:
    cursor = JobListCursor.parse(cursor_text(sort_field="time", time="2026-06-01T02:00:00.5+02:00"))
    assert cursor.time == datetime(2026, 6, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert json.loads(base64.urlsafe_b64decode(str(cursor)))["time"] == "2026-06-01T00:00:00.5Z"


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "!!!",
        "no cursor",
        "e30=",
        "W10=",
        "bnVsbA==",
        "ÿ",
        cursor_text(id="1"),
        cursor_text(id=1.5),
        cursor_text(id=1 << 63),
        cursor_text(id=...),
        cursor_text(kind=None),
        cursor_text(time=...),
        cursor_text(time=None),
        cursor_text(time="2026-06-01T00:00:00"),
        cursor_text(time="0001-01-01T00:00:00+01:00"),
        cursor_text(sort_field="priority"),
        cursor_text(sort_field=...),
        cursor_text()[:-9],
        7,
        b"e30=",
    ],
    ids=str,
)
def test_what_is_no_cursor_is_refused_before_any_statement(garbage: Any) -> None:
    with pytest.raises(InvalidCursorError, match=r"^after "):
        NOBODY.job_list_tx(None, after=garbage)


def test_a_cursor_of_another_order_is_refused_and_both_orders_are_named() -> None:
    with pytest.raises(InvalidCursorError, match="order 'id', and this list has the order 'time': pass order_by='id'"):
        JobListing.of({"order_by": "time", "after": cursor_text()})


def test_a_job_that_has_no_time_in_the_order_of_a_list_is_no_cursor_for_it() -> None:
    with pytest.raises(InvalidCursorError, match="job 5, which is running and has no finalized_at"):
        JobListing.of({"order_by": "finalized_at", "after": golden_job(5)})


MADE_BY_HAND: dict[str, Any] = {"id": 1, "kind": "k", "queue": "q", "sort_field": "scheduled_at", "time": None}


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ({"id": "1"}, "id of a JobListCursor must be the id of a job, a whole number of at most 64 bits, not '1'"),
        ({"id": True}, "id of .*, not True"),
        ({"id": 1 << 63}, "id of .*, not 9223372036854775808"),
        ({"kind": None}, "kind of .* must be a text that PostgreSQL can hold, not None"),
        ({"queue": b"q"}, "queue of .*, not b'q'"),
        ({"queue": "\ud800"}, "queue of .* must be a text that PostgreSQL can hold"),
        ({"sort_field": "priority"}, "sort_field of .* must be one of 'id', 'scheduled_at', .*, not 'priority'"),
        ({"sort_field": ["id"]}, r"sort_field of .*, not \['id'\]"),
        ({"time": "2026-06-01T00:00:00Z"}, "time of .* must be None or an aware datetime, .*, not '2026"),
        ({"time": datetime(2026, 6, 1)}, r"time of .* aware datetime, .*, not datetime.datetime\(2026"),  # noqa: DTZ001
        ({"time": date(2026, 6, 1)}, r"time of .*, not datetime.date\(2026"),
        ({"time": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))}, "in the years 1 to 9999 of UTC"),
    ],
    ids=ascii,
)
def test_a_cursor_that_is_made_wrongly_by_hand_is_refused_where_it_is_made(member: Any, message: str) -> None:
    assert JobListCursor(**MADE_BY_HAND).time is None
    with pytest.raises(InvalidCursorError, match=f"{message}.*: take page.cursor as it is"):
        JobListCursor(**MADE_BY_HAND | member)


# Options.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": ["a"]}, "job_list has no option 'kind'; did you mean 'kinds'"),
        ({"first": 0}, "first must be a whole number from 1 to 10,000, not 0"),
        ({"first": 10_001}, "first must be a whole number from 1 to 10,000, not 10001"),
        ({"first": True}, "first must be .*, not True"),
        ({"first": "10"}, "first must be .*, not '10'"),
        ({"ids": 7}, r"ids must be a list, not 7; a list of one is \[7\]"),
        ({"ids": ["7"]}, "each of ids must be a whole number"),
        ({"ids": [1 << 63]}, "each of ids must be a whole number from -9,223,372,036,854,775,808 to"),
        ({"kinds": "email"}, r"kinds must be a list, not 'email'; a list of one is \['email'\]"),
        ({"kinds": ["a\0"]}, "each of kinds must be a text, but 'a.x00' holds U\\+0000"),
        ({"queues": [None]}, "each of queues must be a text, but None is no text"),
        ({"priorities": [5]}, "each of priorities must be a whole number from 1 to 4, not 5"),
        ({"states": ["complete"]}, "each of states must be a state, not 'complete'; did you mean 'completed'"),
        ({"states": "running"}, "states must be a list, not 'running'"),
        ({"states": {"running"}, "order_by": "time"}, 'states must be a list or tuple for order_by="time"'),
        ({"tags_any": [3]}, "each of tags_any must be a text"),
        ({"tags_all": "abc"}, "tags_all must be a list"),
        ({"metadata": '{"a": 1}'}, "metadata must be a mapping, a JSON object, not str"),
        ({"metadata": {"a": float("nan")}}, "metadata .*field 'a' is nan"),
        ({"metadata": {"a": "\0"}}, "metadata cannot be stored: field 'a' holds U\\+0000"),
        ({"metadata": {1: 2}}, "metadata"),
        (
            {"order_by": "priority"},
            "order_by must be one of 'id', 'scheduled_at', 'finalized_at', 'time', not 'priority'",
        ),
        ({"descending": 1}, "descending must be True or False, not 1"),
        (
            {"order_by": "finalized_at", "states": ["completed", "running", "pending"]},
            "lists finalized jobs, and running, pending in states are not",
        ),
        ({"where_parameters": {"a": 1}}, "where_parameters are for where, which is not given"),
        ({"where": 7}, "where must be the text of a condition in SQL, not 7"),
        ({"where": "  "}, "where .* cannot be used: it is empty"),
        ({"where": "-- nothing"}, "it is empty"),
        ({"where": "kind = :kind"}, ":kind has no value; give it in where_parameters"),
        ({"where": "kind = :kond", "where_parameters": {"kind": "a"}}, ":kond has no value; did you mean 'kind'"),
        ({"where": "true", "where_parameters": {"a": 1}}, "where_parameters has 'a', but where does not use it"),
        ({"where": "kind = ':a'", "where_parameters": {"a": 1}}, "where_parameters has 'a', but where does not use it"),
        ({"where": "true /* :a */ -- :a", "where_parameters": {"a": 1}}, "has 'a', but where does not use it"),
        ({"where": "true) OR (true"}, r"it has a '\)' too many"),
        ({"where": "(true"}, r"a '\(' is never closed"),
        ({"where": "(tags[1)]"}, r"it has a '\)' too many"),
        ({"where": "true; DELETE FROM river_job"}, "it must be one condition, without a ';'"),
        ({"where": "kind = 'a"}, "the string or name that begins with ' is never closed"),
        ({"where": 'kind = "a'}, 'the string or name that begins with " is never closed'),
        ({"where": "kind = $a$b"}, r"begins with \$a\$ is never closed"),
        ({"where": "true /* a /* b */"}, "a comment is never closed"),
        ({"where": r"kind = E'a\'"}, "the string or name that begins with E' is never closed"),
        ({"where": "kind = 'a'\n'b"}, "the string or name that begins with ' is never closed"),
        ({"where": "kind = E'a'\n'b\\'"}, "the string or name that begins with E' is never closed"),
        ({"where": "kind = N'a"}, "the string or name that begins with N' is never closed"),
        ({"where": "kind = U&'a"}, "the string or name that begins with U&' is never closed"),
        ({"where": "kind = U&'a' -- :\n'b:c'"}, "a U& string with a colon cannot be handed on: use a parameter"),
        ({"where": "true -- a\r) OR (true"}, r"it has a '\)' too many"),
        ({"where": "id = $1"}, r"\$1 is no parameter here: write :name"),
        ({"where": "kind = U&'a:b'"}, "a U& string with a colon cannot be handed on: use a parameter"),
        ({"where": "a = :a", "where_parameters": {"a": 1j}}, r"where_parameters\['a'\] must be a text, number"),
        ({"where": "a = :a", "where_parameters": {"a": [1, "b"]}}, "must hold texts only, or whole numbers only"),
        ({"where": "a = :a", "where_parameters": {"a": 1 << 63}}, "has more than 64 bits"),
        ({"where": "a = :a", "where_parameters": {"a": "\0"}}, "holds U\\+0000"),
        ({"where": "a = :a", "where_parameters": {"a": datetime(2026, 1, 1)}}, "is no aware datetime"),  # noqa: DTZ001
        (
            {"where": "a = :a", "where_parameters": {"a": Decimal("sNaN")}},
            "is a signalling NaN, which numeric does not",
        ),
        (
            {"where": "a = :a", "where_parameters": {"a": Decimal("1E+131072")}},
            "1E.131072 has more digits than numeric",
        ),
        ({"where": "a = :a", "where_parameters": {"a": Decimal("1.1E-16383")}}, "and 16,383 after it: round it"),
        (
            {"where": "a = :a", "where_parameters": {"a": Decimal("1" * 131_073)}},
            r"'a'\] .* 1{57}\.\.\. has more digits",
        ),
        (
            {"where": "a = :a", "where_parameters": {"a": timedelta.max}},
            "too long for an interval, .* 2,147,483,647 hours",
        ),
        ({"where": "a = :a", "where_parameters": {"a": -LONGEST - SHORTEST}}, r"where_parameters\['a'\] .* too long"),
        ({"where": "a = :a", "where_parameters": ["a"]}, "where_parameters must be a mapping of names to values"),
    ],
    ids=str,
)
def test_an_option_that_breaks_a_rule_is_refused_before_any_statement(options: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        NOBODY.job_list_tx(None, **options)


def test_every_option_may_be_left_at_none_that_says_so() -> None:
    filters = ("ids", "kinds", "priorities", "queues", "states", "tags_all", "tags_any", "metadata", "where", "after")
    nothing: Any = dict.fromkeys([*filters, "where_parameters"])
    assert JobListing.of(nothing) == JobListing.of({})


# Filters.


def add_many(jobs: Jobs) -> list[dict[str, Any]]:
    """Jobs of every state, among others; two of them running, one without a time."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for n in range(48):
        state = list(JobState)[n % 8].value
        jobs.add(
            kind=f"kind{n % 3}",
            queue=f"queue{n % 5}",
            state=state,
            priority=n % 4 + 1,
            # Every time occurs several times, so that the id has to break ties.
            scheduled_at=start + timedelta(seconds=n * 7 % 5),
            attempted_at=None if n % 3 == 0 else start + timedelta(seconds=n * 11 % 4, microseconds=n % 2),
            finalized_at=start + timedelta(microseconds=n * 5 % 7) if state in FINAL else None,
            tags=[f"tag{n % 2}", f"tag{n % 7}"],
            metadata=json.dumps({"n": n, "mod": {"3": n % 3}, "time": "12:30"}),
        )
    return jobs.rows()


def has(job: dict[str, Any], *tags: str) -> bool:
    return any(tag in job["tags"] for tag in tags)


FILTERS: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ({}, lambda job: True),
    ({"ids": [3, 5, 5, 9999]}, lambda job: job["id"] in (3, 5)),
    ({"ids": {4}}, lambda job: job["id"] == 4),
    ({"ids": range(10)}, lambda job: job["id"] < 10),
    ({"ids": []}, lambda job: False),
    ({"kinds": ["kind1"]}, lambda job: job["kind"] == "kind1"),
    ({"kinds": ["kind1", "kind2", 'q"\\']}, lambda job: job["kind"] != "kind0"),
    ({"queues": ["queue0", "queue4"]}, lambda job: job["queue"] in ("queue0", "queue4")),
    ({"priorities": [1, 4]}, lambda job: job["priority"] in (1, 4)),
    ({"states": ["running"]}, lambda job: job["state"] == "running"),
    ({"states": [JobState.COMPLETED, "pending"]}, lambda job: job["state"] in ("completed", "pending")),
    ({"states": []}, lambda job: False),
    ({"tags_all": ["tag1", "tag5"]}, lambda job: {"tag1", "tag5"} <= set(job["tags"])),
    ({"tags_all": []}, lambda job: True),
    ({"tags_any": ["tag2", "tag5"]}, lambda job: has(job, "tag2", "tag5")),
    ({"tags_any": ["TAG2"]}, lambda job: False),
    ({"tags_any": []}, lambda job: False),
    ({"tags_all": ["tag1"], "tags_any": ["tag3", "tag4"]}, lambda job: has(job, "tag1") and has(job, "tag3", "tag4")),
    ({"metadata": {"mod": {"3": 2}}}, lambda job: job["metadata"]["mod"]["3"] == 2),
    ({"metadata": {}}, lambda job: True),
    ({"where": "(metadata ->> 'n')::int > 40"}, lambda job: job["metadata"]["n"] > 40),
    ({"where": "id = 1 OR id = 2"}, lambda job: job["id"] in (1, 2)),
    ({"where": "id = 1 OR id = 2", "ids": [2, 3]}, lambda job: job["id"] == 2),
    (
        {"where": "kind = :kind AND id > :first AND id = ANY(:ids)", "kinds": ["kind0", "kind1"]}
        | {"where_parameters": {"kind": "kind0", "first": 5, "ids": [4, 7, 8]}},
        lambda job: job["id"] == 7,
    ),
    (
        {"ids": range(1, 40), "kinds": ["kind0"], "priorities": [1, 2], "queues": ["queue1", "queue2"]}
        | {"states": ["available", "retryable"], "tags_any": ["tag0"], "metadata": {"time": "12:30"}},
        lambda job: (
            job["id"] < 40
            and job["kind"] == "kind0"
            and job["priority"] in (1, 2)
            and job["queue"] in ("queue1", "queue2")
            and job["state"] in ("available", "retryable")
            and "tag0" in job["tags"]
        ),
    ),
]


@every_way
async def test_a_list_holds_the_jobs_that_every_filter_lets_through(
    way: Way, database_url: str, schema: str, jobs: Jobs
) -> None:
    rows = add_many(jobs)
    async with bench_of(way, database_url, schema) as bench:
        for options, holds in FILTERS:
            page = await call(bench.client.job_list, **options)
            assert [job.id for job in page] == [row["id"] for row in rows if holds(row)], options
            # A second time, prepared perhaps; and through a page of one, which must not change what is let through.
            assert await all_ids(await call(bench.client.job_list, **options, first=7)) == [job.id for job in page]
    assert [len([row for row in rows if holds(row)]) for _, holds in FILTERS].count(0) == 4


def test_without_any_option_a_list_begins_with_the_hundred_lowest_ids(ids: Lister, jobs: Jobs) -> None:
    jobs.add_many(150)
    listed = ids()
    assert listed == list(range(1, 101))
    assert ids(first=10_000) == list(range(1, 151))


# Orders and pages.


def in_order(rows: list[dict[str, Any]], column: str, *, descending: bool) -> list[int]:
    """The ids in the order of a list: nulls last, or first if it is descending."""
    far = datetime(9999, 1, 1, tzinfo=UTC)
    key = (lambda row: row["id"]) if column == "id" else (lambda row: (row[column] or far, row["id"]))
    return [row["id"] for row in sorted(rows, key=key, reverse=descending)]


ORDERS: list[tuple[str, list[str] | None, str]] = [
    ("id", None, "id"),
    ("scheduled_at", None, "scheduled_at"),
    ("scheduled_at", ["running", "completed"], "scheduled_at"),
    ("finalized_at", None, "finalized_at"),
    ("finalized_at", ["discarded"], "finalized_at"),
    ("time", None, "scheduled_at"),
    *(("time", [state], "scheduled_at") for state in ("available", "pending", "retryable", "scheduled")),
    ("time", ["running"], "attempted_at"),
    *(("time", [state], "finalized_at") for state in FINAL),
    ("time", FINAL, "finalized_at"),
    # The first state decides, for jobs of the others, too.
    ("time", ["running", "completed", "available"], "attempted_at"),
    ("time", ["completed", "running", "available"], "finalized_at"),
    ("time", ["available", "completed", "running"], "scheduled_at"),
]


@pytest.mark.parametrize("first", [1, 3, 100])
@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@every_way
async def test_all_pages_together_are_the_whole_list_in_its_order(
    way: Way, database_url: str, schema: str, jobs: Jobs, *, descending: bool, first: int
) -> None:
    rows = add_many(jobs)
    async with bench_of(way, database_url, schema) as bench:
        for order_by, states, column in ORDERS:
            options = {"order_by": order_by, "states": states, "descending": descending, "first": first}
            listed = set(states or (FINAL if order_by == "finalized_at" else JobState))
            expected = in_order([row for row in rows if row["state"] in listed], column, descending=descending)
            page = await call(bench.client.job_list, **options)
            assert [job.id for job in page] == expected[:first], options
            assert await all_ids(page) == expected, options


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_a_list_goes_on_after_a_cursor_its_text_or_a_job_alike(
    page: Callable[..., JobListPage], jobs: Jobs, *, descending: bool
) -> None:
    add_many(jobs)
    for order_by, states, _ in ORDERS:
        options = {"order_by": order_by, "states": states, "descending": descending}
        whole = [job.id for job in page(**options)]
        begun = page(**options, first=2)
        cursor = begun.cursor
        assert cursor is not None
        for after in (cursor, str(cursor), begun.jobs[-1]):
            assert [job.id for job in page(**options, after=after)] == whole[2:], options


def test_the_cursors_that_go_wrote_lead_to_what_follows(page: Callable[..., JobListPage], jobs: Jobs) -> None:
    for job in GOLDEN["jobs"]:
        jobs.add(**job)
    for case in GOLDEN["cursors"]:
        options = {"order_by": case["order_by"], "states": case["states"]}
        whole = [job.id for job in page(**options)]
        if case["id"] == 7 and case["states"] == ["cancelled"]:
            assert whole == [7]
        assert [job.id for job in page(**options, after=case["text"])] == whole[whole.index(case["id"]) + 1 :], case


def test_a_page_is_a_sequence_of_jobs_and_an_empty_one_has_no_cursor(
    page: Callable[..., JobListPage], jobs: Jobs
) -> None:
    job_id = jobs.add()
    found = page()
    assert (len(found), [job.id for job in found], found.jobs[0].id, bool(found)) == (1, [job_id], job_id, True)
    assert repr(found) == "<JobListPage of 1 jobs by id>"
    empty = page(after=found.cursor)
    assert (len(empty), list(empty), empty.cursor, bool(empty), list(empty.all())) == (0, [], None, False, [])


def test_a_page_that_is_not_full_is_the_last_and_the_next_is_not_asked_for(
    page: Callable[..., JobListPage], jobs: Jobs
) -> None:
    jobs.add_many(3)
    found = page(first=4)
    jobs.add_many(3)
    assert [job.id for job in found.all()] == [1, 2, 3]
    assert [job.id for job in page(first=3).all()] == [1, 2, 3, 4, 5, 6]


def test_ordered_by_id_no_job_comes_twice_and_none_is_missed_whatever_changes_between_pages(
    page: Callable[..., JobListPage], jobs: Jobs
) -> None:
    jobs.add_many(6)
    seen: list[int] = []
    for job in page(first=2).all():
        seen.append(job.id)
        if job.id == 2:
            jobs.execute("DELETE FROM {job} WHERE id IN (1, 2, 3)")
            jobs.execute("UPDATE {job} SET scheduled_at = now() - interval '1 year' WHERE id = 6")
            jobs.add_many(1)
    assert seen == [1, 2, 4, 5, 6, 7]


def test_the_pages_that_follow_see_what_the_hosts_transaction_has_written(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    jobs.add_many(2)
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        page = client.job_list_tx(connection, first=1)
        client.job_delete_tx(connection, 2)
        assert [job.id for job in page.all()] == [1]
        connection.rollback()
        assert [job.id for job in page.all()] == [1, 2]


# The host's own condition.


LITERALS = [
    "'12:30' = :noon",
    "E'a\\'12:30' <> :noon",
    "E'12\\:30' = :noon",
    r"E'a\\:b' = 'a\:b' AND length(E'a\\:b\::') = 6",
    "$$12:30$$ = :noon",
    "time'12:30' = TIME '12:30:00' AND CAST(time'12:30' AS text) LIKE :noon || '%'",
    "$t$12:30$t$ = :noon",
    "'a\\b:c' <> :noon",
    "'it''s:so' <> :noon",
    '(SELECT "a:b" FROM (SELECT :noon AS "a:b") AS x) = :noon',
    "kind LIKE 'k%%' AND kind LIKE 'k%' AND '100%s:x' <> :noon",
    "kind <> '{schema}' AND '{' <> '}' AND metadata ? 'n'",
    "/* it's :nothing /* nested */ */ :noon = :noon -- isn't :it",
    "'12'\n':30' = :noon AND 'it''s:'\t-- isn't it:\r\n\n -- :nothing\n'it\\:' = 'it''s:it\\:'",
    "E'1\\x32:'\n'30\\'' = :noon || '''' AND E'12\\:'\r'30' = :noon",
    "N'12:30' = :noon AND n'1'\n'2:30' = :noon AND pg_typeof(N':')::text = 'character' AND N'a\\:' = 'a\\:'",
    "U&'12\\003A'\n'30' = :noon",
    "true -- isn't :it\r AND '12:30' = :noon",
    "(SELECT €n = :noon FROM (SELECT '12:30' AS €n) AS x)",
    "(ARRAY[1, 2, 3])[1:2] = ARRAY[1, 2] AND (ARRAY[1, 2, 3])[:2] = ARRAY[1, 2]",
    "(ARRAY[1, 2, 3])[2 : :two] = ARRAY[2]",
    "metadata @? '$.n ? (@ >= 0)' AND metadata ->> 'time' = :noon::text::varchar",
    "jsonb_path_query_first(metadata, '$.time') = to_jsonb(:noon)",
]


@pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
async def test_a_condition_means_what_it_says_in_sql_whatever_looks_like_a_parameter(
    way: Way, database_url: str, schema: str, jobs: Jobs
) -> None:
    jobs.add(kind="k1", metadata='{"n": 1, "time": "12:30"}')
    async with bench_of(way, database_url, schema) as bench:
        for condition in LITERALS:
            parameters = {name: value for name, value in {"noon": "12:30", "two": 2}.items() if f":{name}" in condition}
            options = {"where": condition, "where_parameters": parameters}
            assert len(await call(bench.client.job_list, **options)) == 1, condition
            options["where"] = f"NOT ({condition}\n)"
            assert len(await call(bench.client.job_list, **options)) == 0, condition


class Quantity(float):
    """A float that shows itself in its own way, as numpy's do."""

    def __repr__(self) -> str:
        return f"Quantity({float(self)})"


VALUES: list[tuple[object, str]] = [
    ("a 'quoted' \\ % :text {}", "text"),
    (JobState.RUNNING, "text"),
    (-(1 << 63), "bigint"),
    (True, "boolean"),
    (1.5, "double precision"),
    (float("inf"), "double precision"),
    (Quantity(1.5), "double precision"),
    (Decimal("1.50"), "numeric"),
    *(
        (Decimal(text), "numeric")
        for text in ("9.9E+131071", "-1E-16383", "0E+200000", "0E-200000", "-NaN7", "Infinity")
    ),
    (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "timestamp with time zone"),
    (datetime(2026, 1, 2, 3, tzinfo=UTC).astimezone(), "timestamp with time zone"),
    (date(2026, 1, 2), "date"),
    (timedelta(days=-3, microseconds=1), "interval"),
    (LONGEST, "interval"),
    (-LONGEST, "interval"),
    (UUID(int=7), "uuid"),
    (["a", "b,c", 'd"e\\'], "text[]"),
    ([1, 2], "bigint[]"),
    ((1, 2), "bigint[]"),
    ({"a": [1, {"b": "ü"}]}, "jsonb"),
]


@pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
async def test_a_parameter_is_sent_as_the_type_of_its_value_by_every_library(
    way: Way, database_url: str, schema: str, jobs: Jobs
) -> None:
    job_id = jobs.add()
    async with bench_of(way, database_url, schema) as bench:
        for value, sql_type in VALUES:
            options = {
                "where": "pg_typeof(:value)::text = :type",
                "where_parameters": {"value": value, "type": sql_type},
            }
            assert [job.id for job in await call(bench.client.job_list, **options)] == [job_id], value
        nothing = {"where": "(:value IS NULL) AND NOT id = ANY(:none)", "where_parameters": {"value": None, "none": []}}
        assert len(await call(bench.client.job_list, **nothing)) == 1


def test_a_value_reaches_the_database_as_it_is(ids: Lister, jobs: Jobs) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    text = "a 'quoted' \\ % :text {} \""
    job_id = jobs.add(kind=text, scheduled_at=at, tags=[text], metadata=json.dumps({"a": text}))
    for condition, value in [
        ("kind = :value", text),
        ("scheduled_at = :value", at),
        ("scheduled_at - :value < '2026-01-01 00:00:00+00'", timedelta(days=2)),
        ("tags::text[] = :value", [text]),
        ("metadata = :value", {"a": text}),
        ("created_at > now() - :value", timedelta(hours=1)),
        ("interval '-1 day -1 hour -0.000001 second' = :value", -timedelta(days=1, hours=1, microseconds=1)),
        ("extract(epoch FROM :value) = 7730941132800 - 0.000001", LONGEST),
        ("extract(epoch FROM :value) = -7730941132800 + 0.000001", -LONGEST),
        ("1.5 = :value", Quantity(1.5)),
        ("'NaN' = :value", Decimal("-NaN7")),
        ("0 = :value", Decimal("0E-200000")),
        ("1e131000 * 1e71 = :value", Decimal("1E+131071")),
        ("CAST(state AS text) = :value", JobState.AVAILABLE),
        ("id = :value", job_id),
    ]:
        assert ids(where=condition, where_parameters={"value": value}) == [job_id], condition


def test_a_parameter_is_never_taken_for_one_of_rivers_own(ids: Lister, jobs: Jobs) -> None:
    jobs.add(kind="a")
    job_id = jobs.add(kind="b", queue="q")
    parameters = {"ids": "b", "first": "q", "after_id": 0, "kinds": "b", "where_1": 4}
    condition = "kind = :ids AND queue = :first AND id > :after_id AND kind = :kinds AND :where_1 = 4"
    assert ids(where=condition, where_parameters=parameters, ids=[1, 2], kinds=["a", "b"], first=5) == [job_id]


def test_a_parameter_that_is_used_twice_is_sent_once() -> None:
    where = where_of("kind = :a OR queue = :a OR kind = :b", {"a": "x", "b": "y"})
    assert where is not None
    assert where.parameters == {"where_1": "x", "where_2": "y"}


def test_what_postgresql_does_not_understand_is_a_database_error(database_url: str, schema: str) -> None:
    client = Client(database_url, schema=schema)
    try:
        with pytest.raises(DatabaseError, match="no_such_column"):
            client.job_list(where="no_such_column = 1")
        assert list(client.job_list()) == []
    finally:
        client.close()


NAMES_NO_TABLE = [
    ("id IN (SELECT id FROM nowhere)", 'relation "nowhere" does not exist'),
    ("id IN (SELECT id FROM nowhere.river_job)", 'relation "nowhere.river_job" does not exist'),
    ("nowhere.id = 1", 'missing FROM-clause entry for table "nowhere"'),
    # River calls it job.
    ("river_job.id = 1", 'FROM-clause entry for table "river_job"'),
]


@pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
async def test_a_condition_that_names_no_table_is_not_taken_for_rivers_own_tables_missing(
    way: Way, database_url: str, schema: str
) -> None:
    async with bench_of(way, database_url, schema) as bench:
        for condition, said in NAMES_NO_TABLE:
            with pytest.raises(DatabaseError) as error:
                await call(bench.client.job_list, where=condition)
            assert said in str(error.value)
            assert "River's tables" not in str(error.value), condition
            assert error.value.sqlstate == "42P01"
        bench.jobs.execute("ALTER TABLE {job} RENAME TO away")
        with pytest.raises(DatabaseError, match=f"River's tables are not in the schema '{schema}'"):
            await call(bench.client.job_list)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_in_the_hosts_transaction_only_a_table_of_rivers_that_is_missing_gets_the_note_that_says_so(
    kind: Kind, database_url: str, schema: str
) -> None:
    cases: list[tuple[str | None, dict[str, Any], bool]] = [
        (None, {}, True),
        ("nowhere", {}, True),
        ("nowhere", {"where": "id IN (SELECT id FROM nowhere)"}, True),
        *((schema, {"where": condition}, False) for condition, _ in NAMES_NO_TABLE),
    ]
    async with opened(kind, database_url) as host:
        for asked, options, missing in cases:
            with pytest.raises(Exception, match=r"FROM-clause|does not exist") as error:
                await settle(Client(None, schema=asked).job_list_tx(host.handle, **options))
            await host.rollback()
            notes = "\n".join(error.value.__notes__)
            assert "roll it back" in notes
            assert ("River's tables are not where" in notes) is missing, (asked, options)


# Odd rows.


def test_a_job_that_cannot_be_read_does_not_hide_the_others(page: Callable[..., JobListPage], jobs: Jobs) -> None:
    first = jobs.add()
    odd = jobs.add(metadata="[1]", kind="odd")
    never = jobs.add(scheduled_at="infinity")
    last = jobs.add()
    found = page()
    assert [job.id for job in found] == [first, odd, never, last]
    assert found.undecodable.keys() == {odd, never}
    assert found.undecodable[odd].startswith("metadata: ")
    assert (found.jobs[1].kind, found.jobs[1].metadata) == ("odd", {})
    assert [job.id for job in page(first=1).all()] == [first, odd, never, last]


ODD_TIMES = [
    "-infinity",
    "4714-11-24 00:00:00+00 BC",
    "0044-03-15 12:00:00.000001+00 BC",
    "0001-01-01 00:00:00+00",
    "2026-01-01 00:00:00+00",
    "9999-12-31 23:59:59.999999+00",
    "10000-01-01 02:00:00+00",
    "294276-12-31 23:59:59.999999+00",
    "infinity",
]
"""In their order; those in the middle are the ones that Python can hold."""


def add_odd(jobs: Jobs, column: str, state: str) -> list[int]:
    """Jobs with odd times, each twice, so that the id breaks the tie."""
    finalized = {"finalized_at": "2026-01-01 00:00:00+00"} if state in FINAL else {}
    return [jobs.add(**{**finalized, "state": state, column: at}) for at in ODD_TIMES for _ in range(2)]


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Tokyo"])
@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_times_that_cannot_be_read_hide_no_job_from_all_whatever_page_they_end(
    database_url: str, schema: str, jobs: Jobs, first: int, zone: str, *, descending: bool
) -> None:
    lists: list[tuple[str, str, list[str]]] = [
        ("scheduled_at", "scheduled_at", ["available"]),
        ("attempted_at", "time", ["running"]),
        ("finalized_at", "finalized_at", ["completed"]),
    ]
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT set_config('TimeZone', %s, false)", [zone])
        client = Client(None, schema=schema)
        for column, order_by, states in lists:
            expected = add_odd(jobs, column, states[0])
            if column == "attempted_at":
                expected += [jobs.add(state="running"), jobs.add(state="running")]  # without one, which come last
            options: Any = {"order_by": order_by, "states": states, "descending": descending, "first": first}
            page = client.job_list_tx(connection, **options)
            assert [job.id for job in page.all()] == (expected[::-1] if descending else expected), column


@every_way
async def test_times_that_cannot_be_read_hide_no_job_from_all_in_either_colour(
    way: Way, database_url: str, schema: str, jobs: Jobs
) -> None:
    expected = add_odd(jobs, "scheduled_at", "available")
    async with bench_of(way, database_url, schema) as bench:
        page = await call(bench.client.job_list, order_by="scheduled_at", first=1)
        assert await all_ids(page) == expected


def test_a_job_that_is_nested_too_deeply_hides_none_though_its_time_is_odd_as_well(
    page: Callable[..., JobListPage], jobs: Jobs
) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    odd = jobs.add(scheduled_at="infinity", metadata=f'{{"a": {deep}}}')
    last = jobs.add(scheduled_at="infinity")
    found = page(first=1, order_by="scheduled_at")
    assert [job.id for job in found.all()] == [odd, last]
    assert "scheduled_at: " in found.undecodable[odd]
    assert "metadata: it is nested too deeply to be read" in found.undecodable[odd]


def test_a_page_that_ends_with_a_time_that_cannot_be_read_has_no_cursor_and_says_what_to_do(
    page: Callable[..., JobListPage], jobs: Jobs
) -> None:
    jobs.add(metadata="[1]")
    never = jobs.add(scheduled_at="infinity")
    before = page(first=1, order_by="scheduled_at")
    at_never = page(order_by="scheduled_at", after=before.cursor)
    assert [job.id for job in at_never] == [never]
    with pytest.raises(UndecodableJobError, match=rf"scheduled_at 'infinity'.* go on with all\(\).*job {never}"):
        _ = at_never.cursor
    by_id = page().cursor
    assert by_id is not None
    assert by_id.id == never
