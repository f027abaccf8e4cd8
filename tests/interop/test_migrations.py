"""One database, two migrators: the real River's and this one's, in any order, up and down."""

from __future__ import annotations

import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from river import MigrationError
from tests.interop import ledger
from tests.interop.go_river import GoRiver, GoRiverError
from tests.interop.python_river import PythonRiver, River
from tests.support import catalogue

# The build has a deadline of its own, which is longer than that of a test.
pytestmark = pytest.mark.timeout(120, func_only=True)

NEWEST = 8
UPWARDS = range(1, NEWEST + 1)
DOWNWARDS = range(NEWEST - 1, -1, -1)

Side = Literal["go", "python"]
SIDES: tuple[Side, ...] = ("go", "python")

either_migrates = pytest.mark.parametrize("migrating", SIDES)


def test_both_know_the_same_versions_by_the_same_names(
    go_elsewhere: GoRiver, database_url: str, other_schema: str
) -> None:
    ours = PythonRiver(database_url, other_schema).migrator.migrations
    assert [(each.version, each.name) for each in ours] == [
        (each.version, each.name) for each in go_elsewhere.versions()
    ]
    assert ours[-1].version == NEWEST


def assert_both_see(rivers: dict[str, River], version: int) -> None:
    """Both find the versions up to *version* applied and no other, and validate that."""
    for river in rivers.values():
        assert river.applied() == list(range(1, version + 1)), river
        assert river.unapplied() == list(range(version + 1, NEWEST + 1)), river
        if version > 0:
            assert river.unapplied(version) == [], river
        if version < NEWEST:
            assert river.unapplied(version + 1) == [version + 1], river


@either_migrates
def test_at_every_version_up_and_down_both_see_what_one_has_migrated(rivers: dict[str, River], migrating: Side) -> None:
    assert_both_see(rivers, 0)
    for version in UPWARDS:
        assert rivers[migrating].up(version) == [version]
        assert_both_see(rivers, version)
    for version in DOWNWARDS:
        assert rivers[migrating].down() == [version + 1]
        assert_both_see(rivers, version)


@either_migrates
def test_all_versions_in_one_call_are_all_versions_for_both(rivers: dict[str, River], migrating: Side) -> None:
    assert rivers[migrating].up() == [*UPWARDS]
    assert_both_see(rivers, NEWEST)
    assert rivers[migrating].down(0) == [*reversed(UPWARDS)]
    assert_both_see(rivers, 0)


@either_migrates
def test_the_recorded_rows_are_rivers_at_every_version_up_and_down(
    connection: psycopg.Connection, empty_schema: str, rivers: dict[str, River], migrating: Side
) -> None:
    for version in UPWARDS:
        rivers[migrating].up(version)
        assert ledger.read(connection, empty_schema) == ledger.expected(version)
    for version in DOWNWARDS:
        rivers[migrating].down()
        assert ledger.read(connection, empty_schema) == ledger.expected(version)


@either_migrates
def test_the_times_of_versions_survive_the_rebuilds_of_version_5(
    connection: psycopg.Connection, empty_schema: str, rivers: dict[str, River], migrating: Side
) -> None:
    river = rivers[migrating]
    river.up(4)
    before = ledger.times(connection, empty_schema)
    river.up(5)
    assert {**ledger.times(connection, empty_schema), **before} == ledger.times(connection, empty_schema)
    river.down(4)
    assert ledger.times(connection, empty_schema) == before


def test_the_catalogue_is_rivers_at_every_version_up_and_down(
    connection: psycopg.Connection,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
) -> None:
    def assert_alike() -> None:
        assert catalogue.read(connection, empty_schema) == catalogue.read(connection, other_schema)

    for version in UPWARDS:
        rivers["python"].up(version)
        go_elsewhere.up(version)
        assert_alike()
    for _ in DOWNWARDS:
        rivers["python"].down()
        go_elsewhere.down()
        assert_alike()
    assert catalogue.read(connection, empty_schema) == {"tables": {}, "enums": {}, "functions": [], "sequences": []}


class Move(NamedTuple):
    """One migrator takes the schema to a version."""

    side: Side
    version: int

    def make(self, river: River, start: int) -> list[int]:
        """Make this move from version *start*; the versions that were applied or reverted."""
        return river.up(self.version) if self.version >= start else river.down(self.version)

    def steps(self, start: int) -> list[int]:
        """The versions that must be applied or reverted."""
        if self.version >= start:
            return list(range(start + 1, self.version + 1))
        return list(range(start, self.version, -1))


IN_BLOCKS = (
    Move("go", 3),
    Move("python", 6),
    Move("go", 8),
    Move("python", 5),
    Move("go", 7),
    Move("python", 8),
    Move("go", 2),
    Move("python", 4),
    Move("go", 1),
    Move("python", 8),
    Move("go", 4),
    Move("python", 0),
)


def in_turns(first: Side) -> tuple[Move, ...]:
    """All the way up and down, each step by another side than the last."""
    sides: tuple[Side, Side] = ("go", "python") if first == "go" else ("python", "go")
    return tuple(Move(sides[index % 2], version) for index, version in enumerate((*UPWARDS, *DOWNWARDS)))


def at_random(seed: int) -> tuple[Move, ...]:
    """Anywhere, by anyone; also to where the schema is already."""
    chance = random.Random(seed)
    return tuple(Move(chance.choice(SIDES), chance.choice(range(NEWEST + 1))) for _ in range(12))


@pytest.mark.parametrize(
    "moves",
    [
        pytest.param(IN_BLOCKS, id="in blocks"),
        pytest.param(in_turns("go"), id="in turns, Go first"),
        pytest.param(in_turns("python"), id="in turns, Python first"),
        *(pytest.param(at_random(seed), id=f"at random {seed}") for seed in range(4)),
    ],
)
def test_whoever_takes_which_step_the_schema_is_as_if_river_had_taken_them_all(
    connection: psycopg.Connection,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
    moves: tuple[Move, ...],
) -> None:
    start = 0
    for move in moves:
        steps = move.make(rivers[move.side], start)
        assert steps == move.steps(start) == move.make(go_elsewhere, start), move
        assert_both_see(rivers, move.version)
        assert ledger.read(connection, empty_schema) == ledger.expected(move.version), move
        # What is left behind depends on the way: a label of an enum stays, for example.
        assert catalogue.read(connection, empty_schema) == catalogue.read(connection, other_schema), move
        start = move.version


@pytest.mark.parametrize("version", UPWARDS)
def test_neither_does_again_what_the_other_has_done(rivers: dict[str, River], version: int) -> None:
    rivers["go"].up(version)
    assert rivers["python"].up(version) == rivers["python"].down(version) == []
    rivers["python"].down(0)
    rivers["python"].up(version)
    assert rivers["go"].up(version) == rivers["go"].down(version) == []
    assert_both_see(rivers, version)


@either_migrates
def test_without_a_schema_both_use_the_first_one_of_the_search_path(
    connection: psycopg.Connection,
    go_program: Path,
    database_url: str,
    empty_schema: str,
    other_schema: str,
    rivers: dict[str, River],
    migrating: Side,
) -> None:
    path = quote(f'"{empty_schema}","{other_schema}"')
    url = database_url.replace("search_path%3D", f"search_path%3D{path}")
    lost: dict[str, River] = {"go": GoRiver(go_program, url, None), "python": PythonRiver(url, None)}
    assert lost[migrating].up() == [*UPWARDS]
    assert_both_see(lost, NEWEST)
    assert_both_see(rivers, NEWEST)
    assert lost[migrating].down(0) == [*reversed(UPWARDS)]
    assert_both_see(rivers, 0)
    assert catalogue.read(connection, other_schema)["tables"] == {}


OTHER_VERSIONS = (1, 5, 7, 8, 99)


def record_other_line(connection: psycopg.Connection, schema: str) -> None:
    """As if another package of River's, with tables of its own, had migrated too."""
    insert = sql.SQL("INSERT INTO {} (line, version, created_at) VALUES ('other', %s, '2020-02-02T02:02Z')")
    with connection.cursor() as cursor:
        cursor.executemany(
            insert.format(sql.Identifier(schema, "river_migration")), [(version,) for version in OTHER_VERSIONS]
        )


def other_line(connection: psycopg.Connection, schema: str) -> list[tuple[int, int]]:
    """The versions of the other line, and the years of their times."""
    query = sql.SQL(
        "SELECT version, CAST(extract(year FROM created_at) AS int) FROM {} WHERE line = 'other' ORDER BY version"
    )
    return connection.execute(query.format(sql.Identifier(schema, "river_migration"))).fetchall()


@either_migrates
def test_another_lines_rows_stay_as_they_are_and_are_in_nobodys_way(
    connection: psycopg.Connection, empty_schema: str, rivers: dict[str, River], migrating: Side
) -> None:
    rivers[migrating].up(5)
    record_other_line(connection, empty_schema)
    for version in (5, 6, 7, 8):
        rivers[migrating].up(version)
        assert_both_see(rivers, version)
    for version in (7, 6, 5):
        rivers[migrating].down()
        assert_both_see(rivers, version)
    assert other_line(connection, empty_schema) == [(version, 2020) for version in OTHER_VERSIONS]


REFUSALS: dict[Side, type[Exception]] = {"go": GoRiverError, "python": MigrationError}


@either_migrates
def test_version_5_is_not_reverted_while_another_line_is_recorded(
    connection: psycopg.Connection, empty_schema: str, rivers: dict[str, River], migrating: Side
) -> None:
    rivers[migrating].up(6)
    record_other_line(connection, empty_schema)
    with pytest.raises(REFUSALS[migrating]):
        rivers[migrating].down(0)
    # Version 6 was reverted before; the refusal itself has changed nothing.
    assert_both_see(rivers, 5)
    assert other_line(connection, empty_schema) == [(version, 2020) for version in OTHER_VERSIONS]
    at_5 = catalogue.read(connection, empty_schema)
    with pytest.raises(REFUSALS[migrating]) as refusal:
        rivers[migrating].down()
    assert catalogue.read(connection, empty_schema) == at_5
    assert "irreversible" in str(refusal.value) if migrating == "go" else "other" in str(refusal.value)
    connection.execute(
        sql.SQL("DELETE FROM {} WHERE line = 'other'").format(sql.Identifier(empty_schema, "river_migration"))
    )
    assert rivers[migrating].down(0) == [5, 4, 3, 2, 1]


def jobs(connection: psycopg.Connection, schema: str) -> list[tuple[object, ...]]:
    """All jobs, with every column that they have from version 2 to the newest."""
    query = sql.SQL(
        "SELECT id, CAST(state AS text), attempt, max_attempts, attempted_at, created_at, finalized_at, scheduled_at,"
        " priority, args, attempted_by, errors, kind, metadata, queue, tags FROM {} ORDER BY id"
    )
    return connection.execute(query.format(sql.Identifier(schema, "river_job"))).fetchall()


@either_migrates
def test_the_jobs_of_both_survive_down_to_version_2_and_up_again(
    connection: psycopg.Connection, empty_schema: str, rivers: dict[str, River], migrating: Side
) -> None:
    river = rivers[migrating]
    river.up(6)
    for side in SIDES:
        rivers[side].insert("at_6", {"by": side, "text": "ä\\\"'\n"})
    river.up()
    for side in SIDES:
        rivers[side].insert("at_8", {"by": side})
    done = sql.SQL("UPDATE {} SET state = 'completed', finalized_at = now() WHERE id IN (1, 2)")
    pending = sql.SQL("UPDATE {} SET state = 'pending' WHERE id IN (3)")
    for update in (done, pending):
        connection.execute(update.format(sql.Identifier(empty_schema, "river_job")))
    before = jobs(connection, empty_schema)
    assert len(before) == 4
    for version in (7, 6, 5, 4, 3, 2):
        river.down(version)
        assert jobs(connection, empty_schema) == before, version
    for version in (3, 4, 5, 6, 7, 8):
        river.up(version)
        assert jobs(connection, empty_schema) == before, version
    for side in SIDES:
        assert rivers[side].insert("again", {}) > 4


OLD_ROWS = sql.SQL(
    "INSERT INTO {} (kind, max_attempts, args, metadata, tags, created_at, scheduled_at) VALUES"
    " ('bare', 3, NULL, '{{}}', NULL, '2020-02-02T02:02Z', '2020-02-02T02:02Z'),"
    """ ('full', 3, '{{"a": [1]}}', '{{"b": 1}}', '{{t}}', '2020-02-02T02:02Z', '2020-02-02T02:02Z')"""
)
ENDED_SOMETIME = sql.SQL("INSERT INTO {} (kind, max_attempts, state) VALUES ('ended', 3, 'completed')")


def test_jobs_of_version_2_are_brought_up_to_date_alike(
    connection: psycopg.Connection,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
) -> None:
    for river, schema in ((rivers["python"], empty_schema), (go_elsewhere, other_schema)):
        river.up(2)
        connection.execute(OLD_ROWS.format(sql.Identifier(schema, "river_job")))
        river.up()
    ours = jobs(connection, empty_schema)
    assert len(ours) == 2
    assert ours == jobs(connection, other_schema)


@either_migrates
def test_a_job_that_version_4_forbids_stops_either_before_it(
    connection: psycopg.Connection, empty_schema: str, rivers: dict[str, River], migrating: Side
) -> None:
    rivers[migrating].up(2)
    connection.execute(ENDED_SOMETIME.format(sql.Identifier(empty_schema, "river_job")))
    with pytest.raises(REFUSALS[migrating], match="finalized_or_finalized_at_null"):
        rivers[migrating].up()
    assert_both_see(rivers, 3)
    assert len(jobs(connection, empty_schema)) == 1


ROWS = sql.SQL(
    "INSERT INTO {} (kind, max_attempts, queue, state, scheduled_at) VALUES"
    " ('k', 3, %(queue)s, 'available', now()),"
    " ('k', 3, %(queue)s || ' later', 'scheduled', now() + INTERVAL '1 hour'),"
    " ('k', 3, %(queue)s || ' \"\\ é', 'available', now())"
)
WAKE = sql.SQL("UPDATE {} SET state = 'available' WHERE state = 'scheduled'")


def heard(connection: psycopg.Connection, schema: str) -> list[str]:
    """What the trigger of old versions tells listeners about some rows; a token of this call's is left out."""
    token = secrets.token_hex(8)
    table = sql.Identifier(schema, "river_job")
    connection.execute(ROWS.format(table), {"queue": token})
    connection.execute(WAKE.format(table))
    end = f"{token} end"
    connection.execute("SELECT pg_notify('river_insert', %s)", [end])
    payloads: list[str] = []
    for notification in connection.notifies(timeout=30):
        if notification.payload == end:
            return payloads
        if token in notification.payload:
            payloads.append(notification.payload.replace(token, "token"))
    raise AssertionError(f"no end was heard, only {payloads}")


@pytest.mark.parametrize("start", [3, 5], ids=["on the way up", "on the way down"])
def test_the_trigger_of_versions_2_and_3_says_the_same(
    connection: psycopg.Connection,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
    start: int,
) -> None:
    for river in (rivers["python"], go_elsewhere):
        river.up(start)
    connection.execute("LISTEN river_insert")
    for version in (3, 2):
        for river in (rivers["python"], go_elsewhere):
            river.down(version)
        ours = heard(connection, empty_schema)
        assert ours == heard(connection, other_schema)
        assert len(ours) == 2


BITMASKS = sql.SQL(
    "SELECT mask, CAST(state AS text), {function}(CAST(mask AS bit(8)), state)"
    " FROM generate_series(0, 255) AS mask, unnest(enum_range(CAST(NULL AS {state}))) AS state"
    " UNION ALL SELECT -1, CAST(state AS text), {function}(NULL, state)"
    " FROM unnest(enum_range(CAST(NULL AS {state}))) AS state"
    " UNION ALL SELECT 255, NULL, {function}(B'11111111', NULL)"
)


def bitmasks(connection: psycopg.Connection, schema: str) -> set[tuple[object, ...]]:
    """Which states are in which bitmask, in the opinion of a schema's function."""
    names = {
        "function": sql.Identifier(schema, "river_job_state_in_bitmask"),
        "state": sql.Identifier(schema, "river_job_state"),
    }
    return set(connection.execute(BITMASKS.format(**names)).fetchall())


def test_the_function_of_version_6_finds_the_same_states_in_every_bitmask(
    connection: psycopg.Connection,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
) -> None:
    rivers["python"].up(6)
    go_elsewhere.up(6)
    ours = bitmasks(connection, empty_schema)
    assert len(ours) == 256 * 8 + 8 + 1
    assert ours == bitmasks(connection, other_schema)


@pytest.mark.parametrize("attempt", range(3))
def test_two_that_migrate_at_once_leave_whole_versions_only(
    connection: psycopg.Connection,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
    attempt: int,
) -> None:
    def migrate(side: Side) -> None:
        # Go takes no lock that others could see, so where the two meet, one of them fails.
        with suppress(REFUSALS[side]):
            rivers[side].up()

    with ThreadPoolExecutor() as pool:
        list(pool.map(migrate, SIDES))
    applied = len(rivers["python"].applied())
    assert ledger.read(connection, empty_schema) == ledger.expected(applied)
    go_elsewhere.up(applied)
    assert catalogue.read(connection, empty_schema) == catalogue.read(connection, other_schema)
    rivers["python"].up()
    assert_both_see(rivers, NEWEST)
