"""Every version's SQL leaves, on its way up and on its way down, what River's own migrations leave.

The schemas are in mixed case and the sessions' search path is empty, so that a name which is not quoted or not
qualified is an error.
"""

from __future__ import annotations

import itertools
import secrets
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from river.sql.migration import Direction, Migration, migrations
from tests.support import catalogue
from tests.support.clients import eventually
from tests.support.urls import DRIVERS, with_driver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIGRATIONS: Final = {migration.version: migration for migration in migrations("postgresql")}
LAST: Final = 8
UP: Final = range(1, LAST + 1)
DOWN: Final = range(LAST, 0, -1)
NOTHING: Final[catalogue.Catalogue] = {"tables": {}, "enums": {}, "functions": [], "sequences": []}
STATES: Final = catalogue.expected()["enums"]["river_job_state"]
FINAL: Final = {"cancelled", "completed", "discarded"}

NAMES: Final = (
    "create river migration",
    "initial schema",
    "river job tags non null",
    "pending and more",
    "migration unique client",
    "bulk unique",
    "notification outbox sqlite jsonb and sql cleanup",
    "job id autoincrement",
)
"""As River's Go migrator gives them."""

FILES: Final = sorted(Path(str(files("river.sql.migration"))).glob("postgresql/*/*.sql"))

every_version = pytest.mark.parametrize("version", UP)
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


class Place:
    """A schema, the connection that migrates it, and what the tests ask of both."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def run(self, statement: str, parameters: Iterable[object] = ()) -> psycopg.Cursor[Any]:
        """Run a statement that has ``{at}`` in front of River's names, as the files have, and %s for parameters."""
        return self.connection.execute(statement.replace("{at}", f'"{self.schema}".').encode(), list(parameters))

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.run(query, parameters).fetchall()

    def value(self, query: str, *parameters: object) -> Any:
        ((value,),) = self.rows(query, *parameters)
        return value

    def up(self, *versions: int) -> None:
        for version in versions:
            self.step(version, "up")

    def down(self, *versions: int) -> None:
        for version in versions:
            self.step(version, "down")

    def step(self, version: int, direction: Direction) -> None:
        """One version and its record, in a transaction; inside of one, in a savepoint."""
        with self.connection.transaction():
            for statement in steps(MIGRATIONS[version], direction, self.schema):
                self.connection.execute(statement.encode())

    def catalogue(self) -> catalogue.Catalogue:
        return catalogue.read(self.connection, self.schema)

    def state_type(self) -> tuple[Any, ...]:
        """Which type and which file `river_job` has; both are others after it was made again."""
        (row,) = self.rows(
            """SELECT atttypid, pg_relation_filenode(attrelid) FROM pg_attribute
            WHERE attrelid = CAST('{at}river_job' AS regclass) AND attname = 'state'"""
        )
        return row


def steps(migration: Migration, direction: Direction, schema: str | None) -> list[str]:
    return [*migration.sql(direction, schema), *migration.record(direction, schema)]


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def place(connection: psycopg.Connection) -> Iterator[Place]:
    """An empty schema in mixed case."""
    name = f"River_T_{secrets.token_hex(8)}"
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    yield Place(connection, name)
    connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


# The files


def test_each_version_has_rivers_name() -> None:
    assert tuple(migration.name for migration in migrations("postgresql")) == NAMES
    assert list(MIGRATIONS) == list(UP)


def test_each_version_has_a_file_for_each_direction() -> None:
    stems = [f"{version:03}_{name.replace(' ', '_')}" for version, name in enumerate(NAMES, 1)]
    assert [file.name for file in FILES] == [f"{stem}.{way}.sql" for stem in stems for way in ("down", "up")]


@every_file
def test_a_file_holds_nothing_that_a_library_takes_for_a_parameter_or_an_escape(file: Path) -> None:
    assert not set(file.read_text(encoding="utf-8")) & set("%:?\\\r\t")


@every_file
def test_a_file_is_statements_with_an_empty_line_between_them(file: Path) -> None:
    content = file.read_text(encoding="utf-8")
    assert content.startswith("-- ")
    assert content.endswith("\n")
    if int(file.name[:3]) == LAST:
        assert all(line.startswith("-- ") for line in content.splitlines())
        return
    for piece in content.removesuffix("\n").split("\n\n"):
        assert piece == piece.strip()
        assert piece.endswith(";")
        assert max(map(len, piece.splitlines())) <= 120


@pytest.mark.parametrize("direction", ["up", "down"])
def test_the_last_version_runs_nothing(direction: Direction) -> None:
    assert MIGRATIONS[LAST].sql(direction, "Jobs") == []


# The catalogue


@every_version
def test_a_step_up_leaves_rivers_catalogue(place: Place, version: int) -> None:
    place.up(*range(1, version + 1))
    assert place.catalogue() == catalogue.after_up(version)


@every_version
def test_a_step_down_leaves_rivers_catalogue(place: Place, version: int) -> None:
    place.up(*UP)
    place.down(*range(LAST, version - 1, -1))
    assert place.catalogue() == catalogue.after_down(version)


@every_version
def test_a_version_that_was_taken_back_can_be_applied_again(place: Place, version: int) -> None:
    place.up(*range(1, version + 1))
    place.down(version)
    place.up(version)
    assert place.catalogue() == catalogue.after_up(version)


def test_the_whole_way_can_be_gone_twice(place: Place) -> None:
    for _ in range(2):
        place.up(*UP)
        assert place.catalogue() == catalogue.expected()
        place.down(*DOWN)
        assert place.catalogue() == NOTHING


def test_no_schema_name_means_the_first_schema_of_the_search_path(place: Place) -> None:
    run_all = "SELECT set_config('search_path', quote_ident(%s), false)"
    place.connection.execute(run_all, [place.schema])
    for version in UP:
        for statement in steps(MIGRATIONS[version], "up", None):
            place.connection.execute(statement.encode())
    assert place.catalogue() == catalogue.expected()
    place.connection.execute(run_all, [place.schema])
    for version in DOWN:
        for statement in steps(MIGRATIONS[version], "down", None):
            place.connection.execute(statement.encode())
    assert place.catalogue() == NOTHING


@pytest.mark.parametrize("driver", [name for name in DRIVERS if name != "postgresql+asyncpg"])
def test_a_blocking_library_runs_every_statement_both_ways(database_url: str, place: Place, driver: str) -> None:
    engine = create_engine(with_driver(database_url, driver), poolclass=NullPool)
    with engine.begin() as connection:
        for version in UP:
            for statement in steps(MIGRATIONS[version], "up", place.schema):
                connection.execute(text(statement))
    assert place.catalogue() == catalogue.expected()
    with engine.begin() as connection:
        for version in DOWN:
            for statement in steps(MIGRATIONS[version], "down", place.schema):
                connection.exec_driver_sql(statement)
    assert place.catalogue() == NOTHING


async def test_asyncpg_prepares_and_runs_every_statement_both_ways(database_url: str, place: Place) -> None:
    engine = create_async_engine(with_driver(database_url, "postgresql+asyncpg"), poolclass=NullPool)
    async with engine.begin() as connection:
        for version in UP:
            for statement in steps(MIGRATIONS[version], "up", place.schema):
                await connection.execute(text(statement))
    assert place.catalogue() == catalogue.expected()
    async with engine.begin() as connection:
        for version in DOWN:
            for statement in steps(MIGRATIONS[version], "down", place.schema):
                await connection.exec_driver_sql(statement)
    assert place.catalogue() == NOTHING


# One transaction


def test_all_versions_can_be_applied_in_one_transaction(place: Place) -> None:
    with place.connection.transaction():
        for version in UP:
            for statement in steps(MIGRATIONS[version], "up", place.schema):
                place.connection.execute(statement.encode())
    assert place.catalogue() == catalogue.expected()


def test_jobs_of_every_state_but_the_new_one_can_be_made_in_the_transaction_that_made_the_states(place: Place) -> None:
    with place.connection.transaction():
        place.up(*UP)
        for state in STATES:
            if state != "pending":
                insert_job(place, state)
        key = {"unique_key": b"x", "unique_states": "11111111"}
        insert_job(place, **key)
        with pytest.raises(psycopg.errors.UniqueViolation), place.connection.transaction():
            insert_job(place, **key)
    insert_job(place, "pending")


def test_all_versions_can_be_applied_in_one_savepoint_after_another_was_given_up(place: Place) -> None:
    with place.connection.transaction():
        with place.connection.transaction(force_rollback=True):
            place.up(*UP)
        with place.connection.transaction():
            place.up(*UP)
    assert place.catalogue() == catalogue.expected()
    insert_job(place, "pending")


def test_all_versions_can_be_taken_back_and_applied_again_in_one_transaction(place: Place) -> None:
    place.up(*UP)
    with place.connection.transaction():
        place.down(*DOWN)
        assert place.catalogue() == NOTHING
        place.up(*UP)
        place.down(*DOWN)
        place.up(*UP)
    assert place.catalogue() == catalogue.expected()
    insert_job(place, "pending")


@every_version
def test_the_rest_can_be_applied_and_taken_back_in_one_transaction(place: Place, version: int) -> None:
    place.up(*range(1, version + 1))
    rest = range(version + 1, LAST + 1)
    with place.connection.transaction():
        place.up(*rest)
        assert place.catalogue() == catalogue.expected()
        place.down(*reversed(rest))
        place.up(*rest)
    assert place.catalogue() == catalogue.expected()
    insert_job(place, "pending")


def test_jobs_that_are_as_new_as_their_states_keep_them(place: Place) -> None:
    with place.connection.transaction():
        place.up(1, 2, 3)
        states = [state for state in STATES if state != "pending"]
        for state in states:
            insert_job(place, state)
        place.up(4)
        assert [state for (state,) in place.rows("SELECT state FROM {at}river_job ORDER BY id")] == states
        place.up(5, 6, 7, 8)
    assert place.catalogue() == catalogue.expected()


def test_the_label_that_the_way_down_left_is_not_added_again(place: Place) -> None:
    place.up(1, 2, 3, 4)
    before = place.state_type()
    place.down(4)
    place.up(4)
    assert place.state_type() == before


# Jobs


def insert_job(place: Place, state: str = "available", /, **columns: object) -> int:
    values: dict[str, object] = {"state": state, "args": "{}", "kind": "k", "max_attempts": 3, **columns}
    if state in FINAL:
        values["finalized_at"] = "2026-01-01T00:00:00Z"
    marks = ", ".join(["%s"] * len(values))
    query = f"INSERT INTO {{at}}river_job ({', '.join(values)}) VALUES ({marks}) RETURNING id"
    job_id: int = place.value(query, *values.values())
    return job_id


JOBS: Final = """
SELECT id, state, attempt, max_attempts, attempted_at, created_at, finalized_at, scheduled_at, priority, args,
  attempted_by, errors, kind, metadata, queue, tags
FROM {at}river_job
ORDER BY id
"""


def test_jobs_go_down_to_version_2_and_up_again_as_they_were(place: Place) -> None:
    place.up(*UP)
    for state in STATES:
        insert_job(
            place, state, args='{"a": 1}', metadata='{"m": 2}', tags=["t"], queue="q", attempted_by=["c"], priority=4
        )
    before = place.rows(JOBS)
    place.down(*range(LAST, 2, -1))
    assert place.rows(JOBS) == before
    place.up(*range(3, LAST + 1))
    assert place.rows(JOBS) == before


def test_what_was_null_is_filled_in(place: Place) -> None:
    place.up(1, 2)
    insert_job(place, args=None, tags=None)
    insert_job(place, args='{"a": 1}', tags=["t"])
    place.up(3)
    assert place.rows("SELECT args, tags FROM {at}river_job ORDER BY id") == [(None, []), ({"a": 1}, ["t"])]
    place.up(4)
    place.down(4)
    place.run("UPDATE {at}river_job SET metadata = NULL")
    place.up(4)
    assert place.rows("SELECT args, metadata, tags FROM {at}river_job ORDER BY id") == [
        ({}, {}, []),
        ({"a": 1}, {}, ["t"]),
    ]


def test_a_pending_job_stays_pending_where_the_state_is_unknown(place: Place) -> None:
    place.up(1, 2, 3, 4)
    insert_job(place, "pending")
    place.down(4, 3)
    assert place.rows("SELECT state FROM {at}river_job") == [("pending",)]
    place.up(3, 4)
    assert place.rows("SELECT state FROM {at}river_job") == [("pending",)]


def test_a_final_job_without_the_time_of_its_end_stops_version_4_before_it_has_changed_anything(place: Place) -> None:
    place.up(1, 2, 3)
    place.run("INSERT INTO {at}river_job (args, kind, max_attempts, state) VALUES ('{}', 'k', 1, 'completed')")
    before = place.rows(JOBS)
    with pytest.raises(errors.CheckViolation, match="finalized_or_finalized_at_null"):
        place.up(4)
    assert place.rows(JOBS) == before
    assert place.catalogue() == catalogue.after_up(3)


def test_a_lease_under_another_name_does_not_stop_version_4(place: Place) -> None:
    place.up(1, 2, 3)
    place.run("INSERT INTO {at}river_leader VALUES (now(), now(), 'a', 'default'), (now(), now(), 'b', 'other')")
    place.up(4)
    assert place.rows("SELECT leader_id, name FROM {at}river_leader") == [("a", "default")]


KEYS: Final = "SELECT id, unique_key, unique_states FROM {at}river_job ORDER BY id"


def test_keys_survive_versions_5_to_8_and_their_states_are_lost_with_version_6(place: Place) -> None:
    place.up(*UP)
    job_id = insert_job(place, unique_key=b"x", unique_states="00000001")
    place.down(8, 7)
    assert place.rows(KEYS) == [(job_id, b"x", "00000001")]
    place.down(6)
    place.up(6)
    assert place.rows(KEYS) == [(job_id, b"x", None)]
    place.down(6, 5)
    place.up(5, 6)
    assert place.rows(KEYS) == [(job_id, None, None)]


def test_of_jobs_that_had_one_key_its_holder_or_else_the_newest_keeps_it_below_version_6(place: Place) -> None:
    place.up(*UP)
    only_available = "00000001"
    given_up = insert_job(place, "completed", unique_key=b"x", unique_states=only_available)
    holder = insert_job(place, "available", unique_key=b"x", unique_states=only_available)
    later = insert_job(place, "running", unique_key=b"x", unique_states=only_available)
    older = insert_job(place, "completed", unique_key=b"y", unique_states=only_available)
    stateless = insert_job(place, "completed", unique_key=b"y")
    another_kind = insert_job(place, "completed", kind="l", unique_key=b"y", unique_states=only_available)
    keyless = insert_job(place)
    place.down(8, 7, 6)
    assert dict(place.rows("SELECT id, unique_key FROM {at}river_job ORDER BY id")) == {
        given_up: None,
        holder: b"x",
        later: None,
        older: None,
        stateless: b"y",
        another_kind: b"y",
        keyless: None,
    }
    with pytest.raises(errors.UniqueViolation, match="river_job_kind_unique_key_idx"):
        insert_job(place, "completed", unique_key=b"x")


# What the function and the trigger do


def test_a_state_is_in_a_bitmask_if_its_bit_is_set_counted_from_the_right(place: Place) -> None:
    place.up(1, 2, 3, 4, 5, 6)
    found = place.rows(
        """SELECT mask, state, {at}river_job_state_in_bitmask(CAST(mask AS bit(8)), state)
        FROM generate_series(0, 255) AS mask, unnest(enum_range(CAST(NULL AS {at}river_job_state))) AS state"""
    )
    assert sorted(found) == [
        (mask, state, bool(mask >> STATES.index(state) & 1)) for mask, state in itertools.product(range(256), STATES)
    ]


def test_an_unknown_state_is_in_no_bitmask_and_an_unknown_bitmask_is_unknown(place: Place) -> None:
    place.up(1, 2, 3, 4, 5, 6)
    assert place.value("SELECT {at}river_job_state_in_bitmask(B'11111111', NULL)") is False
    for state in STATES:
        assert place.value("SELECT {at}river_job_state_in_bitmask(NULL, %s)", state) is None


def test_an_insert_can_name_the_unique_index_by_its_predicate(place: Place) -> None:
    place.up(*UP)
    insert = """INSERT INTO {at}river_job (args, kind, unique_key, unique_states) VALUES ('{}', 'k', 'x', B'00000001')
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL
        AND {at}river_job_state_in_bitmask(unique_states, state) DO NOTHING RETURNING id"""
    assert len(place.rows(insert)) == 1
    assert place.rows(insert) == []
    place.run("UPDATE {at}river_job SET state = 'running'")
    assert len(place.rows(insert)) == 1


INSERTS: Final = (("available", 'a "b" é'), ("scheduled", "no"), ("running", "no"), ("available", "b"))


def notifications(place: Place) -> list[str]:
    """What a client of versions 2 and 3 is told of INSERTS, one transaction each, and of jobs that change later.

    The channel has no schema in its name, so others in this database use it too: each queue carries ours.
    """
    place.run("LISTEN river_insert")
    for state, queue in INSERTS:
        insert_job(place, state, queue=f"{place.schema} {queue}")
    place.run("UPDATE {at}river_job SET state = 'available'")
    place.run("SELECT pg_notify('river_insert', %s)", [f"end {place.schema}"])
    payloads = [notify.payload for notify in place.connection.notifies(timeout=30, stop_after=1)]
    while f"end {place.schema}" not in payloads:
        more = [notify.payload for notify in place.connection.notifies(timeout=30, stop_after=1)]
        assert more, "the end was never heard of"
        payloads += more
    return [payload.replace(f"{place.schema} ", "") for payload in payloads if f"{place.schema} " in payload]


# What a database that River's Go migrator had brought to version 2 gave to a listener.
TOLD: Final = ['{"queue" : "a \\"b\\" é"}', '{"queue" : "b"}']


@pytest.mark.parametrize(
    ("up", "down", "told"),
    [(2, 2, TOLD), (3, 3, TOLD), (4, 4, []), (8, 4, TOLD), (8, 3, TOLD), (8, 5, [])],
    ids=["up to 2", "up to 3", "up to 4", "down through 4", "down through 3", "down through 5"],
)
def test_available_jobs_are_announced_as_rivers_versions_2_and_3_do(
    place: Place, up: int, down: int, told: list[str]
) -> None:
    place.up(*range(1, up + 1))
    if up != down:
        place.down(*range(LAST, down - 1, -1))
    assert notifications(place) == told


# The record


RECORD: Final = "SELECT version, created_at FROM {at}river_migration ORDER BY version"


def test_the_record_keeps_its_times_through_version_5_and_back(place: Place) -> None:
    place.up(1, 2, 3, 4)
    before = place.rows(RECORD)
    assert [version for version, _ in before] == [1, 2, 3, 4]
    place.up(5)
    assert place.rows(RECORD)[:4] == before
    assert place.rows("SELECT DISTINCT line FROM {at}river_migration") == [("main",)]
    place.down(5)
    assert place.rows(RECORD) == before
    place.up(5)
    assert place.rows(RECORD)[:4] == before


@pytest.mark.parametrize("name", ["river_migration_pkey", "river_migration_pkey1", "anything"])
def test_the_records_key_may_have_any_name(place: Place, name: str) -> None:
    place.up(*UP)
    rename = "ALTER TABLE {at}river_migration RENAME CONSTRAINT "
    if name != "river_migration_pkey1":
        place.run(f"{rename} river_migration_pkey1 TO {name}")
    place.down(8, 7, 6, 5)
    assert place.catalogue() == catalogue.after_down(5)
    if name != "river_migration_pkey":
        place.run(f"{rename} river_migration_pkey TO {name}")
    place.up(5)
    assert place.catalogue() == catalogue.after_up(5)


def test_version_5_does_without_a_record_that_another_tool_keeps(place: Place) -> None:
    place.up(1, 2, 3, 4)
    place.run("DROP TABLE {at}river_migration")
    without: dict[int, catalogue.Catalogue] = {}
    for version in (4, 5):
        without[version] = catalogue.after_up(version)
        del without[version]["tables"]["river_migration"]
        sequences = without[version]["sequences"]
        without[version]["sequences"] = [one for one in sequences if one["name"] != "river_migration_id_seq"]
    for direction, left in (("up", 5), ("down", 4)):
        with place.connection.transaction():
            for statement in MIGRATIONS[5].sql("up" if direction == "up" else "down", place.schema):
                place.connection.execute(statement.encode())
        assert place.catalogue() == without[left]


def test_version_5_stays_while_another_line_has_versions(place: Place) -> None:
    place.up(*UP)
    place.down(8, 7, 6)
    place.run("INSERT INTO {at}river_migration (line, version) VALUES ('pro', 1), ('own', 1), ('own', 2)")
    recorded = place.rows("SELECT * FROM {at}river_migration")
    with pytest.raises(errors.RaiseException, match=r"\(own, pro\); migrate those lines down first") as refusal:
        place.down(5)
    assert refusal.value.sqlstate == "P0001"
    assert place.catalogue() == catalogue.after_up(5)
    assert place.rows("SELECT * FROM {at}river_migration") == recorded
    place.run("DELETE FROM {at}river_migration WHERE line <> 'main'")
    place.down(5)
    assert place.catalogue() == catalogue.after_down(5)


async def test_a_line_that_comes_while_version_5_is_taken_back_is_not_taken_for_main(
    database_url: str, place: Place
) -> None:
    place.up(1, 2, 3, 4, 5)
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
    pid = place.connection.info.backend_pid
    with psycopg.connect(database_url, autocommit=True) as connection, ThreadPoolExecutor() as pool:
        other = Place(connection, place.schema)
        with connection.transaction():
            other.run("INSERT INTO {at}river_migration (line, version) VALUES ('own', 6)")
            taken_back = pool.submit(place.down, 5)
            await eventually(lambda: other.value(waiting, pid), "version 5 waits for the new line")
        with pytest.raises(errors.RaiseException, match=r"\(own\)"):
            taken_back.result(timeout=30)
    assert place.catalogue() == catalogue.after_up(5)


@pytest.mark.parametrize(("version", "direction"), [(5, "down"), (5, "up"), (6, "up")])
def test_a_refusal_is_the_first_statement(version: int, direction: Direction) -> None:
    """So that it holds, too, where the statements are not in one transaction."""
    first, *others = MIGRATIONS[version].sql(direction, "Jobs")
    assert "RAISE EXCEPTION" in first
    assert not any("RAISE EXCEPTION" in other for other in others)


# What an operator built before


KEY_INDEX: Final = "river_job_kind_unique_key_idx"
UNIQUE_INDEX: Final = "river_job_unique_idx"

AHEAD: Final = {
    5: (
        "ALTER TABLE {at}river_job ADD COLUMN unique_key bytea",
        f"""CREATE UNIQUE INDEX CONCURRENTLY {KEY_INDEX} ON {{at}}river_job (kind, unique_key)
        WHERE unique_key IS NOT NULL""",
    ),
    6: (
        """CREATE FUNCTION {at}river_job_state_in_bitmask(bitmask bit(8), state {at}river_job_state)
        RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
        SELECT get_bit(bitmask, 8 - array_position(enum_range(CAST(NULL AS {at}river_job_state)), state)) = 1 $$""",
        "ALTER TABLE {at}river_job ADD COLUMN unique_states bit(8)",
        f"""CREATE UNIQUE INDEX CONCURRENTLY {UNIQUE_INDEX} ON {{at}}river_job (unique_key)
        WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL
        AND {{at}}river_job_state_in_bitmask(unique_states, state)""",
    ),
}
INDEX: Final = {5: KEY_INDEX, 6: UNIQUE_INDEX}

# Two of one key, which the index cannot be built over.
CONFLICTS: Final[dict[int, dict[str, object]]] = {
    5: {"unique_key": b"x"},
    6: {"unique_key": b"x", "unique_states": "11111111"},
}


def index_oid(place: Place, name: str) -> int:
    oid: int = place.value("SELECT CAST(CAST(%s AS regclass) AS oid)", f'"{place.schema}".{name}')
    return oid


@pytest.mark.parametrize("version", [5, 6])
def test_what_an_operator_built_ahead_is_kept(place: Place, version: int) -> None:
    place.up(*range(1, version))
    for statement in AHEAD[version]:
        place.run(statement)
    before = index_oid(place, INDEX[version])
    place.up(version)
    assert index_oid(place, INDEX[version]) == before
    assert place.catalogue() == catalogue.after_up(version)


@pytest.mark.parametrize("version", [5, 6])
def test_what_an_operator_did_not_get_to_is_added(place: Place, version: int) -> None:
    place.up(*range(1, version))
    for statement in AHEAD[version][:-1]:
        place.run(statement)
    place.up(version)
    assert place.catalogue() == catalogue.after_up(version)


@pytest.mark.parametrize("version", [5, 6])
def test_an_index_whose_building_failed_is_refused_before_anything_is_changed(place: Place, version: int) -> None:
    place.up(*range(1, version))
    *first, build = AHEAD[version]
    for statement in first:
        place.run(statement)
    for kind in ("k", "l") if version == 6 else ("k", "k"):
        insert_job(place, kind=kind, **CONFLICTS[version])
    with pytest.raises(errors.UniqueViolation, match=INDEX[version]):
        place.run(build)
    before = place.catalogue(), place.rows(JOBS), place.rows(RECORD)
    remedy = f"DROP INDEX {INDEX[version]} and build it again"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=f"index {INDEX[version]} is invalid.*{remedy}"):
        place.up(version)
    assert (place.catalogue(), place.rows(JOBS), place.rows(RECORD)) == before

    place.run("DELETE FROM {at}river_job WHERE id = (SELECT max(id) FROM {at}river_job)")
    place.run(f"DROP INDEX {{at}}{INDEX[version]}")
    place.run(build)
    place.up(version)
    assert place.catalogue() == catalogue.after_up(version)


def test_version_6_does_not_ask_for_the_index_that_it_drops(place: Place) -> None:
    place.up(1, 2, 3, 4, 5)
    place.run(f"DROP INDEX {{at}}{KEY_INDEX}")
    place.up(6)
    assert place.catalogue() == catalogue.after_up(6)


def test_versions_5_and_7_do_not_ask_for_the_tables_that_they_drop(place: Place) -> None:
    place.up(1, 2, 3, 4, 5, 6)
    place.run("DROP TABLE {at}river_client_queue, {at}river_client")
    place.up(7)
    assert place.catalogue() == catalogue.after_up(7)
    place.down(7, 6)
    place.run("DROP TABLE {at}river_client_queue, {at}river_client")
    place.down(5)
    assert place.catalogue() == catalogue.after_down(5)
