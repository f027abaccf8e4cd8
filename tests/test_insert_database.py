"""Inserts on a real PostgreSQL: what is stored is what was given, or nothing was asked of the server.

Each test works in one transaction of a host's, which an error of the database would spoil: that it goes on is part
of each claim.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Self

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from river import AsyncClient, Client, InsertManyParams, InsertOpts, InvalidJobError, JobArgs, JobRow, JobState
from river.args import any_json
from river.nesting import DEEPEST
from tests.conftest import run_script
from tests.support.schemas import creation
from tests.support.urls import with_driver

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

on_one_transaction = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150
)


@dataclass
class Note:
    kind: ClassVar[str] = "note"
    number: int = 1


class Given:
    """Gives what it was given as its JSON."""

    kind = "given"

    def __init__(self, text: str) -> None:
        self.text = text

    def to_json(self) -> str:
        return self.text


@pytest.fixture
def connection(database_url: str, schema: str) -> Iterator[psycopg.Connection]:
    """Closed before *schema* is dropped, for which its locks would be in the way."""
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def client(schema: str) -> Client:
    return Client(None, schema=schema)


def stored_args(row: JobRow) -> Any:
    return any_json(row.encoded_args)


def same(found: Any, wanted: Any) -> bool:
    """Equal, but that numeric keeps neither an exponent nor a negative zero: 1e23 comes back as 10 ** 23."""
    match wanted:
        case dict():
            return (
                isinstance(found, dict)
                and found.keys() == wanted.keys()
                and all(same(found[key], wanted[key]) for key in wanted)
            )
        case list():
            return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
        case float():
            return isinstance(found, int | float) and not isinstance(found, bool) and float(found) == wanted
        case _:
            return type(found) is type(wanted) and bool(found == wanted)


def columns(connection: psycopg.Connection, schema: str, job_id: int) -> dict[str, Any]:
    query = sql.SQL("SELECT * FROM {}.river_job WHERE id = %s").format(sql.Identifier(schema))
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query, [job_id]).fetchone()
    assert row is not None
    return row


def count(connection: psycopg.Connection, schema: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}.river_job").format(sql.Identifier(schema))).fetchone()
    assert row is not None
    return int(row[0])


ANY_TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\x00", "\ud800", "\\u0000", "\\", '"', "'", "null", "NaN", ":jobs", "%s", "%(jobs)s", "{}", "$1", "--", "/*", "é"]
)
NUMBERS = (
    st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, 1e308, 5e-324, -0.0, 1e23])
)
JSONS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(ANY_TEXT, JSONS, max_size=5)


def unstorable(value: Any) -> bool:
    match value:
        case dict():
            return any(unstorable(key) or unstorable(item) for key, item in value.items())
        case list():
            return any(unstorable(item) for item in value)
        case str():
            return "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value)
        case float():
            return not math.isfinite(value)
        case _:
            return False


@on_one_transaction
@given(mapping=MAPPINGS)
def test_any_args_come_back_exactly_or_are_refused_before_the_server_hears_of_them(
    connection: psycopg.Connection, client: Client, mapping: dict[str, Any]
) -> None:
    if unstorable(mapping):
        with pytest.raises(InvalidJobError):
            client.insert_tx(connection, JobArgs("k", mapping))
    else:
        inserted = client.insert_tx(connection, JobArgs("k", mapping)).job
        assert same(stored_args(inserted), mapping)
        assert same(stored_args(client.job_get_tx(connection, inserted.id)), mapping)


@on_one_transaction
@given(mapping=MAPPINGS)
def test_any_metadata_comes_back_exactly_or_is_refused_before_the_server_hears_of_it(
    connection: psycopg.Connection, client: Client, mapping: dict[str, Any]
) -> None:
    if unstorable(mapping):
        with pytest.raises(InvalidJobError):
            client.insert_tx(connection, Note(), metadata=mapping)
    else:
        inserted = client.insert_tx(connection, Note(), metadata=mapping).job
        assert same(client.job_get_tx(connection, inserted.id).metadata, mapping)


@on_one_transaction
@given(mapping=MAPPINGS, ascii_only=st.booleans())
def test_any_text_of_a_to_json_comes_back_exactly_or_is_refused_before_the_server_hears_of_it(
    connection: psycopg.Connection, client: Client, mapping: dict[str, Any], ascii_only: bool
) -> None:
    args = Given(json.dumps(mapping, ensure_ascii=ascii_only))
    try:
        inserted = client.insert_tx(connection, args).job
    except InvalidJobError:
        assert unstorable(json.loads(args.text))
    else:
        assert same(stored_args(client.job_get_tx(connection, inserted.id)), json.loads(args.text))


@on_one_transaction
@given(text=st.text('{}[]":,0123456789.eE+-\\u \tntrfalsNI/', max_size=30) | st.text(max_size=20))
def test_no_text_of_a_to_json_gets_the_server_to_complain(
    connection: psycopg.Connection, client: Client, text: str
) -> None:
    for attempt in (text, "{" + text + "}", '{"a":' + text + "}", '{"a":"' + text + '"}'):
        try:
            client.insert_tx(connection, Given(attempt))
        except InvalidJobError:
            continue
        assert isinstance(json.loads(attempt), dict)


@on_one_transaction
@given(
    options=st.fixed_dictionaries(
        {},
        optional={
            "queue": st.text(st.characters(), max_size=70) | st.sampled_from(["a", "a-b"]) | st.integers(),
            "priority": st.integers() | st.floats() | st.text(max_size=1),
            "max_attempts": st.integers() | st.integers(1, 40_000),
            "scheduled_at": st.datetimes() | st.datetimes(timezones=st.timezones()),
            "tags": st.lists(ANY_TEXT | st.text("abc-", min_size=3) | st.integers()),
        },
    )
)
def test_any_options_are_stored_exactly_or_refused_before_the_server_hears_of_them(
    connection: psycopg.Connection, client: Client, options: dict[str, Any]
) -> None:
    try:
        inserted = client.insert_tx(connection, Note(), **options).job
    except InvalidJobError:
        return
    stored = client.job_get_tx(connection, inserted.id)
    for name, value in options.items():
        assert getattr(stored, name) == (value or "default" if name == "queue" else value)


TRICKY: dict[str, Any] = {
    "colons": ":jobs ::text :a \\:b",
    "percent": "%s %(jobs)s %%",
    "dollar": "$1 $$ $x$",
    "quotes": "'\" \\' \\\" `",
    "braces": "{schema} {{}} {0}",
    "comments": "-- /* */ ; ?",
    "unicode": "é 😀 \u2028 ￿",
    "escapes": "\\u0000 \\ud800 \\\\ \n\r\t\x01\x1f\x7f",
    ":key %s": [1, 2.5, None, True, 2**63, {"": []}],
}


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000"])
def test_every_blocking_library_stores_what_was_given(database_url: str, client: Client, drivername: str) -> None:
    engine = create_engine(with_driver(database_url, drivername))
    try:
        with engine.connect() as connection:
            batch = [InsertManyParams(JobArgs("k:%s", TRICKY), InsertOpts(metadata=TRICKY, tags=["a-b"]))] * 2
            for result in client.insert_many_tx(connection, batch):
                stored = client.job_get_tx(connection, result.job.id)
                assert (stored_args(stored), stored.metadata, stored.tags) == (TRICKY, TRICKY, ["a-b"])
                assert stored.kind == "k:%s"
    finally:
        engine.dispose()


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "postgresql+asyncpg"])
async def test_every_asyncio_library_stores_what_was_given(database_url: str, client: Client, drivername: str) -> None:
    engine = create_async_engine(with_driver(database_url, drivername))
    try:
        async with engine.connect() as connection:
            batch = [InsertManyParams(JobArgs("k:%s", TRICKY), InsertOpts(metadata=TRICKY, tags=["a-b"]))] * 2
            for result in await client.insert_many_tx(connection, batch):
                stored = await client.job_get_tx(connection, result.job.id)
                assert (stored_args(stored), stored.metadata, stored.tags) == (TRICKY, TRICKY, ["a-b"])
    finally:
        await engine.dispose()


def test_every_column_of_a_new_job(connection: psycopg.Connection, client: Client, schema: str) -> None:
    job = client.insert_tx(
        connection, Note(5), queue="q", priority=3, max_attempts=4, tags=["abc", "a-c"], metadata={"m": 1}
    ).job
    row = columns(connection, schema, job.id)
    now = row.pop("created_at")
    assert row == {
        "id": job.id,
        "state": "available",
        "attempt": 0,
        "max_attempts": 4,
        "attempted_at": None,
        "finalized_at": None,
        "scheduled_at": now,
        "priority": 3,
        "args": {"number": 5},
        "attempted_by": None,
        "errors": None,
        "kind": "note",
        "metadata": {"m": 1},
        "queue": "q",
        "tags": ["abc", "a-c"],
        "unique_key": None,
        "unique_states": None,
    }
    assert (job.created_at, job.scheduled_at) == (now, now)


def test_the_times_of_a_new_job_are_the_databases(connection: psycopg.Connection, client: Client) -> None:
    """They are those of the transaction, which no clock of this process can know to the microsecond."""
    now = connection.execute("SELECT now()").fetchone()
    assert now is not None
    first, second = client.insert_many_tx(connection, [Note(), InsertManyParams(Note(), InsertOpts(scheduled_at=AT))])
    assert (first.job.created_at, first.job.scheduled_at) == (now[0], now[0])
    assert (second.job.created_at, second.job.scheduled_at) == (now[0], AT)


@pytest.mark.parametrize("at", [AT, datetime(1970, 1, 1, tzinfo=UTC), datetime(2318, 1, 1, tzinfo=UTC)])
def test_a_job_with_a_time_is_scheduled_also_in_the_past(
    connection: psycopg.Connection, client: Client, schema: str, at: datetime
) -> None:
    job = client.insert_tx(connection, Note(), scheduled_at=at).job
    assert (job.state, job.scheduled_at) == (JobState.SCHEDULED, at)
    row = columns(connection, schema, job.id)
    assert (row["state"], row["scheduled_at"]) == ("scheduled", at)


def test_ten_thousand_jobs_keep_their_order(connection: psycopg.Connection, client: Client) -> None:
    results = client.insert_many_tx(connection, [Note(n) for n in range(10_000)])
    assert [stored_args(each.job)["number"] for each in results] == list(range(10_000))
    assert [each.job.args.number for each in results] == list(range(10_000))
    ids = [each.job.id for each in results]
    assert ids == sorted(set(ids))


def test_the_order_does_not_depend_on_what_the_jobs_say(connection: psycopg.Connection, client: Client) -> None:
    batch = [
        InsertManyParams(
            Note(n), InsertOpts(priority=1 + n % 4, queue=f"q{n % 7}", scheduled_at=AT - timedelta(days=n))
        )
        for n in range(500)
    ]
    assert [stored_args(each.job)["number"] for each in client.insert_many_tx(connection, batch)] == list(range(500))


def test_args_of_a_mebibyte_come_back(connection: psycopg.Connection, client: Client) -> None:
    value = {"text": "é" * 2**19, "list": list(range(10_000))}
    job = client.insert_tx(connection, JobArgs("k", value), metadata=value).job
    stored = client.job_get_tx(connection, job.id)
    assert (stored_args(stored), stored.metadata) == (value, value)


def nested(levels: int) -> Any:
    """A JSON object with so many levels, and brackets in its texts that are none."""
    value: Any = "]} [{"
    for level in range(levels):
        value = {"a": value} if level % 2 or level == levels - 1 else [value]
    return value


def test_args_and_metadata_may_have_200_levels_and_no_more(connection: psycopg.Connection, client: Client) -> None:
    deepest = nested(DEEPEST)
    job = client.insert_tx(connection, JobArgs("k", deepest), metadata=deepest).job
    stored = client.job_get_tx(connection, job.id)
    assert (stored_args(stored), stored.metadata) == (deepest, deepest)
    with pytest.raises(InvalidJobError, match="args are nested more than 200 levels"):
        client.insert_tx(connection, JobArgs("k", nested(DEEPEST + 1)))
    with pytest.raises(InvalidJobError, match="metadata is nested more than 200 levels"):
        client.insert_tx(connection, JobArgs("k", {}), metadata=nested(DEEPEST + 1))


def test_a_refusal_leaves_the_transaction_as_it_was(
    connection: psycopg.Connection, client: Client, schema: str
) -> None:
    client.insert_tx(connection, Note())
    with pytest.raises(InvalidJobError):
        client.insert_many_tx(connection, [Note(), JobArgs("k", {"a": "\x00"})])
    with pytest.raises(InvalidJobError):
        client.insert_many_tx(connection, [])
    assert count(connection, schema) == 1


def test_a_rolled_back_insert_never_was(
    connection: psycopg.Connection, database_url: str, client: Client, schema: str
) -> None:
    client.insert_tx(connection, Note())
    connection.rollback()
    assert count(connection, schema) == 0
    client.insert_tx(connection, Note())
    with psycopg.connect(database_url) as other:
        assert count(other, schema) == 0
        connection.commit()
        assert count(other, schema) == 1


class Ear:
    """A connection that listens for inserts into a schema."""

    def __init__(self, url: str, channel: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._channel = sql.Identifier(channel)
        self._connection.execute(sql.SQL("LISTEN {}").format(self._channel))

    def heard(self) -> list[str]:
        """What was sent until now: the connection's own notification comes after it."""
        self._connection.execute(sql.SQL("NOTIFY {}, 'end'").format(self._channel))
        payloads = []
        for notify in self._connection.notifies(timeout=30):
            if notify.payload == "end":
                break
            payloads.append(notify.payload)
        return payloads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@pytest.fixture
def ear(database_url: str, schema: str) -> Iterator[Ear]:
    with Ear(database_url, f"{schema}.river_insert") as ear:
        yield ear


def test_each_queue_with_an_available_job_is_notified_once_at_the_commit(
    connection: psycopg.Connection, client: Client, ear: Ear
) -> None:
    batch = [InsertManyParams(Note(), InsertOpts(queue=queue)) for queue in ("a", "b", "a", "b", "a")]
    client.insert_many_tx(connection, [*batch, InsertManyParams(Note(), InsertOpts(queue="c", scheduled_at=AT))])
    assert ear.heard() == []
    connection.commit()
    assert sorted(map(json.loads, ear.heard()), key=str) == [{"queue": "a"}, {"queue": "b"}]


def test_equal_notifications_of_one_transaction_are_one(
    connection: psycopg.Connection, client: Client, ear: Ear
) -> None:
    for _ in range(3):
        client.insert_tx(connection, Note())
    connection.commit()
    assert [json.loads(payload) for payload in ear.heard()] == [{"queue": "default"}]


def test_an_insert_of_a_scheduled_job_wakes_nobody(connection: psycopg.Connection, client: Client, ear: Ear) -> None:
    client.insert_tx(connection, Note(), scheduled_at=AT)
    connection.commit()
    assert ear.heard() == []


@pytest.mark.parametrize("savepoint", [False, True])
def test_a_rolled_back_insert_wakes_nobody(
    connection: psycopg.Connection, client: Client, ear: Ear, savepoint: bool
) -> None:
    if savepoint:
        with connection.transaction(), connection.transaction(force_rollback=True):
            client.insert_tx(connection, Note())
    else:
        client.insert_tx(connection, Note())
        connection.rollback()
    assert ear.heard() == []


SETTINGS = {
    "TimeZone": ["UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati", "Etc/GMT+12"],
    "DateStyle": ["SQL, DMY", "German", "Postgres, MDY"],
    "IntervalStyle": ["sql_standard"],
    "bytea_output": ["escape", "hex"],
    "extra_float_digits": ["-15"],
    "standard_conforming_strings": ["off"],
    "quote_all_identifiers": ["on"],
    "lc_numeric": ["C"],
}


@pytest.mark.filterwarnings("ignore:.*standard_conforming_strings")
@pytest.mark.parametrize(("setting", "value"), [(name, value) for name, values in SETTINGS.items() for value in values])
def test_no_setting_of_the_session_changes_what_is_read(
    connection: psycopg.Connection, client: Client, schema: str, setting: str, value: str
) -> None:
    args = JobArgs("k", {"ratio": 0.1, "at": "2026-01-02", "back": "\\x00"})
    metadata = {"ratio": 1 / 3, "bytes": "\\x41"}
    first = client.insert_tx(connection, args, scheduled_at=AT, metadata=metadata, tags=["abc"]).job
    connection.execute(
        sql.SQL(
            "UPDATE {}.river_job SET unique_key = %s, unique_states = B'10000001', attempted_by = '{{a,b}}',"
            " attempted_at = %s, errors = ARRAY[%s]"
        ).format(sql.Identifier(schema)),
        [bytes(range(256)), AT, Jsonb({"at": "2026-01-02T03:04:05Z", "attempt": 1, "error": "\\x00", "trace": ""})],
    )
    before = client.job_get_tx(connection, first.id)
    connection.execute("SELECT set_config(%s, %s, true)", [setting, value])
    after = client.job_get_tx(connection, first.id)
    for name in ("attempted_at", "created_at", "scheduled_at", "metadata", "tags", "errors", "attempted_by"):
        assert getattr(after, name) == getattr(before, name)
    assert after.unique_key == before.unique_key == bytes(range(256))
    assert (after.unique_states_text, after.scheduled_at) == ("10000001", AT)
    assert after.scheduled_at.tzinfo is UTC
    again = client.insert_tx(connection, args, scheduled_at=AT, metadata=metadata, tags=["abc"]).job
    assert (again.scheduled_at, again.created_at, again.metadata) == (AT, first.created_at, metadata)
    assert stored_args(again) == stored_args(first)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("year", [1734, 1850])
def test_an_instant_from_before_standard_time_can_be_read_in_any_time_zone(
    connection: psycopg.Connection, client: Client, zone: str, year: int
) -> None:
    """PostgreSQL then prints an offset with seconds; Go clients write such rows when a backoff overflows."""
    connection.execute("SELECT set_config('TimeZone', %s, true)", [zone])
    at = datetime(year, 1, 1, tzinfo=UTC)
    job = client.insert_tx(connection, Note(), scheduled_at=at).job
    assert client.job_get_tx(connection, job.id).scheduled_at == at


def test_the_encoding_of_the_client_does_not_change_what_is_stored(
    connection: psycopg.Connection, client: Client
) -> None:
    job = client.insert_tx(connection, JobArgs("k", {"a": "é"})).job
    connection.execute("SELECT set_config('client_encoding', 'LATIN1', true)")
    assert stored_args(client.job_get_tx(connection, job.id)) == {"a": "é"}
    assert stored_args(client.insert_tx(connection, JobArgs("k", {"a": "é"})).job) == {"a": "é"}


@pytest.fixture
def mixed_case_schema(connection: psycopg.Connection, database_url: str) -> Iterator[str]:
    name = f"River_Mixed_{secrets.token_hex(4)}"
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        run_script(owner, creation(name))
        yield name
        connection.rollback()  # its locks would be in the way
        owner.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def test_a_schema_of_mixed_case_is_a_schema(
    connection: psycopg.Connection, database_url: str, mixed_case_schema: str
) -> None:
    client = Client(None, schema=mixed_case_schema)
    with Ear(database_url, f"{mixed_case_schema}.river_insert") as ear:
        job = client.insert_tx(connection, Note(3), scheduled_at=None).job
        assert stored_args(client.job_get_tx(connection, job.id)) == {"number": 3}
        connection.commit()
        assert count(connection, mixed_case_schema) == 1
        assert [json.loads(payload) for payload in ear.heard()] == [{"queue": "default"}]


def test_without_a_schema_the_search_path_leads(
    connection: psycopg.Connection, database_url: str, mixed_case_schema: str
) -> None:
    connection.execute("SELECT set_config('search_path', quote_ident(%s), false)", [mixed_case_schema])
    client = Client(None)
    with Ear(database_url, f"{mixed_case_schema}.river_insert") as ear:
        job = client.insert_tx(connection, Note(3)).job
        assert client.job_get_tx(connection, job.id).id == job.id
        connection.commit()
        assert count(connection, mixed_case_schema) == 1
        assert [json.loads(payload) for payload in ear.heard()] == [{"queue": "default"}]


def test_a_client_of_its_own_commits(database_url: str, connection: psycopg.Connection, schema: str) -> None:
    with Client(database_url, schema=schema) as client:
        job = client.insert(Note(4), queue="q").job
        assert (job.args, job.queue) == (Note(4), "q")
        assert [each.job.args for each in client.insert_many([Note(1), Note(2)])] == [Note(1), Note(2)]
        with pytest.raises(InvalidJobError):
            client.insert(Note(), priority=9)
        with pytest.raises(InvalidJobError):
            client.insert_many([Note(), JobArgs("k", {"a": "\x00"})])
        with pytest.raises(InvalidJobError):
            client.insert_many([])
        assert client.job_get(job.id).id == job.id
    assert count(connection, schema) == 3


async def test_an_asyncio_client_of_its_own_commits(
    database_url: str, connection: psycopg.Connection, schema: str
) -> None:
    async with AsyncClient(database_url, schema=schema) as client:
        job = (await client.insert(Note(4), queue="q")).job
        assert (job.args, job.queue) == (Note(4), "q")
        assert [each.job.args for each in await client.insert_many([Note(1), Note(2)])] == [Note(1), Note(2)]
        with pytest.raises(InvalidJobError):
            await client.insert(Note(), priority=9)
        with pytest.raises(InvalidJobError):
            await client.insert_many([])
        assert (await client.job_get(job.id)).id == job.id
    assert count(connection, schema) == 3
