"""Queues as they are seen, paused, resumed and given metadata; and what clients are told of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from river import Client
from river.errors import InvalidOptionError, QueueNotFoundError
from tests.support.clients import Bench, Jobs, Row, Way, call, jobs_of, made
from tests.test_manage_jobs import Ear

NOBODY: Any = Client(None)
"""A client that has no database: what it refuses, it refuses before any statement."""

WAYS = [Way("Client", "ConnectionPool"), Way("AsyncClient", "AsyncEngine-asyncpg")]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FIRST_OF_ALL, LAST_OF_ALL = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
NAMES = ["mail", "default", "a-b_c", "zoo"]


class Queues:
    """``river_queue``, in SQL of the tests' own."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs

    def add(self, *names: str, paused_at: datetime | None = None, metadata: str = "{}") -> None:
        """Queues that nobody has touched for long."""
        for name in names:
            self.jobs.execute(
                "INSERT INTO {schema}.river_queue (name, created_at, updated_at, paused_at, metadata)"
                " VALUES (%s, %s, %s, %s, %s)",
                *(name, LONG_AGO, LONG_AGO, paused_at, metadata),
            )

    def rows(self) -> dict[str, Row]:
        """All of them, by name."""
        rows = self.jobs.execute("SELECT * FROM {schema}.river_queue")
        return {row["name"]: row for row in rows}


@pytest.fixture
def queues(database_url: str, schema: str) -> Iterator[Queues]:
    with jobs_of(database_url, schema) as jobs:
        yield Queues(jobs)


@pytest.fixture
async def bench(way: Way, database_url: str, schema: str) -> AsyncGenerator[Bench]:
    async with made(way, database_url, schema, queues={}) as bench:
        yield bench


@pytest.fixture
def ear(database_url: str, schema: str) -> Iterator[Ear]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Ear(connection, schema)


def recent(at: datetime) -> bool:
    return abs(datetime.now(UTC) - at) < timedelta(minutes=1)


# Get and list.


@every_way
async def test_a_queue_is_read_as_it_is(bench: Bench, queues: Queues) -> None:
    queues.add("mail", paused_at=LONG_AGO, metadata='{"a": [1]}')
    queue = await call(bench.client.queue_get, "mail")
    assert (queue.name, queue.metadata, queue.paused) == ("mail", {"a": [1]}, True)
    assert (queue.created_at, queue.updated_at, queue.paused_at) == (LONG_AGO, LONG_AGO, LONG_AGO)


@every_way
async def test_queues_are_listed_by_name_as_many_as_are_asked_for(bench: Bench, queues: Queues) -> None:
    assert await call(bench.client.queue_list) == []
    queues.add(*NAMES)
    assert [queue.name for queue in await call(bench.client.queue_list)] == sorted(NAMES)
    assert [queue.name for queue in await call(bench.client.queue_list, first=2)] == sorted(NAMES)[:2]


@every_way
async def test_without_a_number_a_hundred_queues_are_listed(bench: Bench, queues: Queues) -> None:
    queues.add(*(f"q{n:03}" for n in range(101)))
    assert len(await call(bench.client.queue_list)) == 100
    assert len(await call(bench.client.queue_list, first=10_000)) == 101


@every_way
async def test_a_queue_whose_metadata_are_no_object_does_not_hide_the_others(bench: Bench, queues: Queues) -> None:
    queues.add("mail", metadata="[1]")
    queues.add("zoo", metadata='{"a": 1}')
    assert [queue.metadata for queue in await call(bench.client.queue_list)] == [{}, {"a": 1}]
    assert (await call(bench.client.queue_get, "mail")).metadata == {}


ODD_TIMES = [
    ("infinity", LAST_OF_ALL),
    ("-infinity", FIRST_OF_ALL),
    ("12000-01-01 00:00:00+00", LAST_OF_ALL),
    ("10000-01-01 02:00:00+00", LAST_OF_ALL),
    ("0044-03-15 00:00:00+00 BC", FIRST_OF_ALL),
    ("0001-12-31 23:00:00+00 BC", FIRST_OF_ALL),
    ("0001-01-03 00:00:00+00", FIRST_OF_ALL + timedelta(days=2)),
    ("1700-01-02 03:04:05.000006+00", datetime(1700, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
]


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Tokyo"])
@pytest.mark.parametrize("column", ["created_at", "updated_at", "paused_at"])
def test_a_queue_with_a_time_that_python_cannot_hold_has_the_nearest_and_does_not_hide_the_others(
    database_url: str, schema: str, queues: Queues, column: str, zone: str
) -> None:
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT set_config('TimeZone', %s, false)", [zone])
        for n, (at, expected) in enumerate(ODD_TIMES):
            queues.add(f"{n}", metadata='{"a": 1}')
            queues.jobs.execute(f"UPDATE {{schema}}.river_queue SET {column} = %s WHERE name = %s", at, f"{n}")
            queue = client.queue_get_tx(connection, f"{n}")
            assert (getattr(queue, column), queue.metadata) == (expected, {"a": 1}), at
            assert queue.paused is (column == "paused_at")
        listed = client.queue_list_tx(connection)
    assert [getattr(queue, column) for queue in listed] == [expected for _, expected in ODD_TIMES]


@every_way
async def test_a_queue_that_is_odd_in_every_column_is_read_and_can_be_changed(bench: Bench, queues: Queues) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    queues.add("mail", "zoo", metadata=f'{{"a": {deep}}}')
    queues.jobs.execute(
        "UPDATE {schema}.river_queue SET created_at = '-infinity', paused_at = 'infinity', updated_at = 'infinity'"
        " WHERE name = 'mail'"
    )
    mail, zoo = await call(bench.client.queue_list)
    assert (mail.created_at, mail.paused_at, mail.updated_at) == (FIRST_OF_ALL, LAST_OF_ALL, LAST_OF_ALL)
    assert (mail.metadata, zoo.metadata, zoo.updated_at) == ({}, {}, LONG_AGO)
    assert (await call(bench.client.queue_update, "mail", metadata={"b": 2})).metadata == {"b": 2}
    await call(bench.client.queue_resume, "mail")
    assert not (await call(bench.client.queue_get, "mail")).paused


# Pause and resume.


@every_way
async def test_pausing_a_queue_says_since_when_and_tells_clients(bench: Bench, queues: Queues, ear: Ear) -> None:
    queues.add(*NAMES)
    before = queues.rows()
    await call(bench.client.queue_pause, "mail")
    after = queues.rows()
    paused = after.pop("mail")
    assert recent(paused["paused_at"])
    assert recent(paused["updated_at"])
    assert (paused["created_at"], paused["metadata"]) == (LONG_AGO, {})
    assert after == {name: row for name, row in before.items() if name != "mail"}
    assert ear.heard() == [{"action": "pause", "queue": "mail"}]


@every_way
async def test_resuming_a_queue_forgets_the_pause_and_tells_clients(bench: Bench, queues: Queues, ear: Ear) -> None:
    queues.add(*NAMES, paused_at=LONG_AGO)
    before = queues.rows()
    await call(bench.client.queue_resume, "mail")
    after = queues.rows()
    resumed = after.pop("mail")
    assert resumed["paused_at"] is None
    assert recent(resumed["updated_at"])
    assert after == {name: row for name, row in before.items() if name != "mail"}
    assert ear.heard() == [{"action": "resume", "queue": "mail"}]


@pytest.mark.parametrize(("method", "paused_at"), [("queue_pause", LONG_AGO), ("queue_resume", None)])
@pytest.mark.parametrize("name", ["mail", "*"])
@every_way
async def test_what_is_so_already_is_left_as_it_is_and_clients_are_told_again(
    bench: Bench, queues: Queues, ear: Ear, method: str, paused_at: datetime | None, name: str
) -> None:
    queues.add(*NAMES, paused_at=paused_at)
    before = queues.rows()
    await call(getattr(bench.client, method), name)
    assert queues.rows() == before
    assert ear.heard() == [{"action": method.removeprefix("queue_"), "queue": name}]


@every_way
async def test_a_star_is_every_queue_and_one_notification(bench: Bench, queues: Queues, ear: Ear) -> None:
    queues.add("mail")
    queues.add("default", paused_at=LONG_AGO)
    await call(bench.client.queue_pause, "*")
    paused = queues.rows()
    assert recent(paused["mail"]["paused_at"])
    assert (paused["default"]["paused_at"], paused["default"]["updated_at"]) == (LONG_AGO, LONG_AGO)
    await call(bench.client.queue_resume, "*")
    assert [row["paused_at"] for row in queues.rows().values()] == [None, None]
    assert ear.heard() == [{"action": "pause", "queue": "*"}, {"action": "resume", "queue": "*"}]


@every_way
async def test_a_star_is_told_to_clients_even_if_no_queue_exists(bench: Bench, queues: Queues, ear: Ear) -> None:
    await call(bench.client.queue_pause, "*")
    await call(bench.client.queue_resume, "*")
    assert queues.rows() == {}
    assert [heard["action"] for heard in ear.heard()] == ["pause", "resume"]


# Update.


@every_way
async def test_new_metadata_replace_the_old_and_clients_are_told_of_them(
    bench: Bench, queues: Queues, ear: Ear
) -> None:
    queues.add("mail", "zoo", metadata='{"old": 1}')
    metadata = {"new": {"a<b>&": "ü"}, "n": 1.0}
    updated = await call(bench.client.queue_update, "mail", metadata=metadata)
    assert updated.metadata == metadata == queues.rows()["mail"]["metadata"]
    assert recent(updated.updated_at)
    assert queues.rows()["zoo"]["metadata"] == {"old": 1}
    assert ear.heard() == [{"action": "metadata_changed", "metadata": metadata, "queue": "mail"}]


@every_way
async def test_an_update_without_metadata_only_says_that_somebody_was_here(
    bench: Bench, queues: Queues, ear: Ear
) -> None:
    queues.add("mail", metadata='{"old": 1}')
    updated = await call(bench.client.queue_update, "mail")
    assert updated.metadata == {"old": 1}
    assert recent(updated.updated_at)
    assert ear.heard() == []


def filled(size: int) -> dict[str, str]:
    """Metadata whose notification for the queue "mail" has so many bytes."""
    empty = len(
        json.dumps({"action": "metadata_changed", "metadata": {"a": ""}, "queue": "mail"}, separators=(",", ":"))
    )
    return {"a": "x" * (size - empty)}


@every_way
async def test_metadata_may_be_as_large_as_a_notification_and_no_larger(bench: Bench, queues: Queues, ear: Ear) -> None:
    queues.add("mail")
    await call(bench.client.queue_update, "mail", metadata=filled(7999))
    assert [heard["metadata"] for heard in ear.heard()] == [filled(7999)]
    with pytest.raises(InvalidOptionError, match="would have 8,000 bytes, and PostgreSQL takes at most 7,999"):
        await call(bench.client.queue_update, "mail", metadata=filled(8000))
    assert queues.rows()["mail"]["metadata"] == filled(7999)


# Refusals.


@pytest.mark.parametrize("method", ["queue_get", "queue_pause", "queue_resume", "queue_update"])
@every_way
async def test_a_queue_that_is_not_there_is_not_found_and_nobody_is_told(
    bench: Bench, queues: Queues, ear: Ear, method: str
) -> None:
    queues.add("mail")
    before = queues.rows()
    options: dict[str, Any] = {"metadata": {}} if method == "queue_update" else {}
    for name in ("Mail", "mail ", ""):
        with pytest.raises(QueueNotFoundError, match="was not found: no client has worked it of late") as raised:
            await call(getattr(bench.client, method), name, **options)
        assert raised.value.name == name
    assert queues.rows() == before
    assert ear.heard() == []


@pytest.mark.parametrize(
    ("method", "arguments", "options", "message"),
    [
        ("queue_get", [7], {}, "name must be a text, but 7 is no text"),
        ("queue_pause", ["a\0"], {}, r"name must be a text, but 'a.x00' holds U\+0000"),
        ("queue_resume", [None], {}, "name must be a text, but None is no text"),
        ("queue_update", [b"mail"], {}, "name must be a text, but b'mail' is no text"),
        ("queue_update", ["mail"], {"metadata": [1]}, "metadata must be a mapping, a JSON object, not list"),
        ("queue_update", ["mail"], {"metadata": {"a": "\0"}}, r"metadata cannot be stored: field 'a' holds U\+0000"),
        ("queue_list", [], {"first": 0}, "first must be a whole number from 1 to 10,000, not 0"),
        ("queue_list", [], {"first": 10_001}, "first must be a whole number from 1 to 10,000, not 10001"),
    ],
    ids=str,
)
def test_what_breaks_a_rule_is_refused_before_any_statement(
    method: str, arguments: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        getattr(NOBODY, f"{method}_tx")(None, *arguments, **options)
    with pytest.raises(InvalidOptionError, match=message):
        getattr(NOBODY, method)(*arguments, **options)
