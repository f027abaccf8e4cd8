"""Rows become jobs, whoever wrote them; what is odd in one is read as well as it can be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from river import AttemptError, Client, Job, JobNotFoundError, JobRow, JobState, Workers
from river.job import UndecodableJob
from river.operation import Row, run
from river.sql import decode, dialect_for
from tests.test_operation import Script, job_row, untimed

GOLDENS = json.loads((Path(__file__).parent / "fixtures" / "protocol_values.json").read_text(encoding="utf-8"))
AT = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
CLAIMED = {"state": "running", "attempt": 1, "attempted_at": "2026-01-02T03:04:05.6789+00:00"}


def job(**columns: Any) -> JobRow:
    (row,) = decode.jobs([job_row(**columns)])
    return row


def claimed(*rows: Row) -> list[JobRow | UndecodableJob]:
    return decode.claimed(rows)


def test_the_states_are_rivers() -> None:
    assert sorted(JobState) == [each["state"] for each in GOLDENS["job_states"]]
    assert [state for state in JobState if state.finalized] == [
        JobState.CANCELLED,
        JobState.COMPLETED,
        JobState.DISCARDED,
    ]


def test_a_state_is_its_text() -> None:
    assert JobState("running") is JobState.RUNNING
    assert str(JobState.RUNNING) == "running"
    assert f"{JobState.RUNNING}" == "running"
    with pytest.raises(ValueError, match="paused"):
        JobState("paused")


@pytest.mark.parametrize("state", JobState)
def test_a_row_of_each_state_is_read(state: JobState) -> None:
    assert job(state=state.value).state is state


def test_every_column_is_read() -> None:
    row = job(
        id=2**62,
        state="retryable",
        attempt=3,
        max_attempts=7,
        attempted_at="2026-01-02T08:49:05.6789+05:45",
        finalized_at=None,
        priority=2,
        args={"a": 1},
        attempted_by=["one", "two"],
        errors=[GOLDENS["attempt_error"]],
        kind="Other's kind, with ümlauts",
        metadata={"output": None, "deep": {"a": [1]}},
        queue="A queue that breaks every rule!",
        tags=["a,b", ""],
        unique_key="\\x00ff",
        unique_states="10000001",
    )
    assert row.attempted_at == row.created_at == AT
    assert (row.id, row.attempt, row.max_attempts, row.priority) == (2**62, 3, 7, 2)
    assert (row.kind, row.queue) == ("Other's kind, with ümlauts", "A queue that breaks every rule!")
    assert (row.attempted_by, row.tags, row.metadata) == (
        ["one", "two"],
        ["a,b", ""],
        {"output": None, "deep": {"a": [1]}},
    )
    assert json.loads(row.encoded_args) == {"a": 1}
    assert (row.unique_key, row.unique_states_text) == (b"\x00\xff", "10000001")
    assert row.errors == [
        AttemptError(at=AT, attempt=3, error='worker failed: escaped "detail"', trace="frame one\nframe two")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.6789+00:00",
        "2026-01-02T03:04:05.678900Z",
        "2026-01-02T08:49:05.6789+05:45",
        "2026-01-01T23:34:05.6789-03:30",
    ],
)
def test_instants_are_aware_and_in_utc_whatever_the_sessions_zone(text: str) -> None:
    row = job(created_at=text, scheduled_at=text, attempted_at=text, finalized_at=text)
    for at in (row.created_at, row.scheduled_at, row.attempted_at, row.finalized_at):
        assert at == AT
        assert at is not None
        assert at.tzinfo is UTC


def test_a_job_is_a_value() -> None:
    assert job() == job()
    assert job(id=1) != job(id=2)
    frozen: Any = job()
    with pytest.raises(AttributeError):
        frozen.queue = "other"


def test_a_column_of_the_future_is_no_harm_and_a_missing_one_is_an_error() -> None:
    assert job(shard=5).id == 1
    document = json.loads(str(job_row()[0]))
    del document["queue"]
    with pytest.raises(msgspec.ValidationError, match="queue"):
        decode.jobs([(json.dumps(document),)])


@pytest.mark.parametrize("value", [5, None, b"{}", {}])
def test_a_driver_that_gives_no_text_is_told_so(value: Any) -> None:
    with pytest.raises(TypeError, match=f"a driver must give text as str, but gave {type(value).__name__}"):
        decode.jobs([(value,)])


@pytest.mark.parametrize("value", ["5", None, 5.0])
def test_a_driver_that_gives_no_integer_is_told_so(value: Any) -> None:
    with pytest.raises(TypeError, match="a driver must give an integer as int"):
        decode.integer(value)


ODD_ERRORS: list[tuple[Any, AttemptError]] = [
    ({}, AttemptError(None, 0, "", "")),
    (None, AttemptError(None, 0, "null", "")),
    ("boom", AttemptError(None, 0, '"boom"', "")),
    ([1, 2], AttemptError(None, 0, "[1,2]", "")),
    (5, AttemptError(None, 0, "5", "")),
    ({"at": None, "attempt": None, "error": None, "trace": None}, AttemptError(None, 0, "", "")),
    ({"at": 5, "attempt": "3", "error": 5, "trace": ["a"]}, AttemptError(None, 0, "5", '["a"]')),
    ({"at": "yesterday", "attempt": 1.5, "error": {"x": 1}}, AttemptError(None, 0, '{"x":1}', "")),
    ({"at": "", "attempt": 3, "error": "", "trace": ""}, AttemptError(None, 3, "", "")),
    ({"attempt": 10**30, "error": "e"}, AttemptError(None, 10**30, "e", "")),
    ({"error": "é \\u0000 😀", "extra": {"a": [1]}}, AttemptError(None, 0, "é \\u0000 😀", "")),
    ({"at": "0001-01-01T00:00:00+14:00"}, AttemptError(None, 0, "", "")),
    ({"at": "9999-12-31T23:59:59-14:00"}, AttemptError(None, 0, "", "")),
    ({"at": "10000-01-01T00:00:00Z"}, AttemptError(None, 0, "", "")),
    ({"at": "2026-01-02T03:04:05.6789"}, AttemptError(AT, 0, "", "")),
]


def as_stored(recorded: Any) -> Row:
    """A row with errors spelt as PostgreSQL does not: without spaces, so that what is kept can be compared."""
    document = json.dumps(json.loads(str(job_row()[0])) | {"errors": [recorded]}, separators=(",", ":"))
    return (document,)


@pytest.mark.parametrize(("recorded", "read"), ODD_ERRORS, ids=lambda value: "" if isinstance(value, tuple) else None)
def test_a_recorded_error_of_an_odd_shape_is_read_as_well_as_it_can_be(recorded: Any, read: AttemptError) -> None:
    (row,) = decode.jobs([as_stored(recorded)])
    assert row.errors == [read]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2025-04-30T13:26:39Z", 0),
        ("2025-04-30T13:26:39.1Z", 100_000),
        ("2025-04-30T13:26:39.12Z", 120_000),
        ("2025-04-30T13:26:39.123456Z", 123_456),
        ("2025-04-30T08:26:39.123456000-05:00", 123_456),
        ("2025-04-30T19:11:39.120000000+05:45", 120_000),
    ],
)
def test_the_time_of_an_error_is_read_in_each_spelling_of_go(text: str, micros: int) -> None:
    assert job(errors=[{"at": text}]).errors[0].at == datetime(2025, 4, 30, 13, 26, 39, micros, tzinfo=UTC)


def test_nanoseconds_lose_less_than_a_microsecond() -> None:
    at = job(errors=[{"at": "2025-04-30T13:26:39.123456789Z"}]).errors[0].at
    assert at is not None
    assert abs(at - datetime(2025, 4, 30, 13, 26, 39, 123_456, tzinfo=UTC)) <= timedelta(microseconds=1)


def test_errors_are_in_their_order_and_none_is_no_errors() -> None:
    assert [each.attempt for each in job(errors=[{"attempt": 1}, "x", {"attempt": 3}]).errors] == [1, 0, 3]
    assert job(errors=None).errors == []
    assert job(errors=[]).errors == []


JSONS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@untimed
@given(JSONS | st.fixed_dictionaries({"at": JSONS, "attempt": JSONS, "error": JSONS, "trace": JSONS}))
def test_no_recorded_error_stops_the_reading(recorded: Any) -> None:
    (error,) = job(errors=[recorded]).errors
    assert isinstance(error.error, str)
    assert isinstance(error.trace, str)
    assert isinstance(error.attempt, int)
    assert error.at is None or error.at.tzinfo is UTC


@untimed
@given(st.binary(max_size=64))
def test_a_unique_key_is_read_in_both_spellings(key: bytes) -> None:
    assert job(unique_key="\\x" + key.hex()).unique_key == key
    escaped = "".join(
        "\\\\" if byte == 0x5C else chr(byte) if 0x20 <= byte <= 0x7E else f"\\{byte:03o}" for byte in key
    )
    # Ambiguous for a reader without the setting; a real key is a SHA-256, which begins so once in 65,536 keys.
    if not escaped.startswith("\\x"):
        assert job(unique_key=escaped).unique_key == key


def test_a_job_without_a_unique_key_has_none() -> None:
    assert job().unique_key is None


UNREADABLE: dict[str, list[tuple[Any, Any]]] = {
    "metadata": [([1], {}), ("x", {}), (None, {}), (5, {})],
    "tags": [(None, []), (["a", None], []), ({"a": 1}, [])],
    "attempted_by": [([None], None), ("me", None)],
    "errors": [({"a": 1}, None)],
    "finalized_at": [("infinity", None), ("-infinity", None), ("0044-03-15T00:00:00+00:00 BC", None)],
    "created_at": [("-infinity", AT), ("12000-01-01T00:00:00+00:00", AT)],
    "scheduled_at": [("-infinity", AT)],
    "unique_key": [(5, None)],
}


@pytest.mark.parametrize(
    ("column", "value", "neutral"), [(column, *pair) for column, pairs in UNREADABLE.items() for pair in pairs]
)
def test_a_claimed_row_with_an_unreadable_column_says_which_and_keeps_the_others(
    column: str, value: Any, neutral: Any
) -> None:
    whole: dict[str, Any] = {
        "metadata": {"m": 1},
        "tags": ["abc"],
        "attempted_by": ["me"],
        "errors": [{"attempt": 1}],
        "id": 7,
    }
    bad, good = claimed(job_row(**CLAIMED | whole | {column: value}), job_row(**CLAIMED | {"id": 8}))
    assert isinstance(bad, UndecodableJob)
    assert bad.reason.startswith(column)
    assert getattr(bad.row, column) == neutral if column != "errors" else bad.row.recorded_errors is None
    for name in {"metadata", "tags", "attempted_by"} - {column}:
        assert getattr(bad.row, name) == whole[name]
    assert (bad.row.id, bad.row.state, bad.row.attempted_at) == (7, JobState.RUNNING, AT)
    assert isinstance(good, JobRow)
    assert good.id == 8


def test_several_unreadable_columns_of_one_row_are_all_replaced() -> None:
    (bad,) = claimed(job_row(**CLAIMED, metadata=[1], tags=None, created_at="infinity"))
    assert isinstance(bad, UndecodableJob)
    assert (bad.row.metadata, bad.row.tags, bad.row.created_at) == ({}, [], AT)


@pytest.mark.parametrize("args", [None, [], "x", 5, {"a": [1]}])
def test_args_of_any_shape_are_left_to_their_reader(args: Any) -> None:
    (row,) = claimed(job_row(**CLAIMED, args=args))
    assert isinstance(row, JobRow)
    assert json.loads(row.encoded_args) == args


@pytest.mark.parametrize("column", ["args", "metadata"])
def test_a_claimed_row_too_deep_to_be_read_is_one_bad_job(column: str) -> None:
    """Go's encoder and PostgreSQL go deeper than Python does, and the claim has been made."""
    document = str(job_row(**CLAIMED)[0]).replace(
        f'"{column}": {{}}', f'"{column}": ' + '{"a":' * 5_000 + "1" + "}" * 5_000
    )
    bad, good = claimed((document,), job_row(**CLAIMED | {"id": 8}))
    assert isinstance(bad, UndecodableJob)
    assert bad.row.id == 1
    assert isinstance(good, JobRow)


def test_a_claim_is_in_the_order_of_priority_time_and_id() -> None:
    rows = [
        job_row(**CLAIMED, id=1, priority=4),
        job_row(**CLAIMED, id=5, metadata=[]),
        job_row(**CLAIMED, id=2, scheduled_at="2026-01-01T00:00:00+00:00", priority=2),
        job_row(**CLAIMED, id=4),
        job_row(**CLAIMED, id=6, scheduled_at="1734-01-01T00:00:00+00:00"),
    ]
    order = [each.row.id if isinstance(each, UndecodableJob) else each.id for each in claimed(*rows)]
    assert order == [6, 4, 5, 2, 1]


@dataclass
class Note:
    kind: ClassVar[str] = "note"
    number: int


def test_a_typed_job_is_the_row_and_its_args() -> None:
    row = job(args={"number": 5}, metadata={"a": 1})
    typed = Job[Note].of(row, Note(5))
    assert typed.args == Note(5)
    for name in JobRow.__struct_fields__:
        assert getattr(typed, name) == getattr(row, name)
    assert isinstance(typed, JobRow)
    assert Job[Note].of(typed, Note(6)).args == Note(6)


def test_a_client_types_a_row_by_the_worker_of_its_kind() -> None:
    workers = Workers()

    @workers.work()
    def work(job: Job[Note], ctx: object) -> None:
        """Nothing."""

    row = job(args={"number": 5})
    assert Client(None, workers=workers).typed(row).args == Note(5)
    assert Client(None).typed(row).args == {"number": 5}


def test_the_dialect_reads_what_a_bare_statement_gives() -> None:
    assert run(Script([job_row(id=3)]), dialect_for("postgresql", None).job_get(3)) == job(id=3)
    assert run(Script([]), dialect_for("postgresql", None).job_get(3)) is None


@pytest.fixture
def connection(database_url: str, schema: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


def test_a_row_that_another_client_wrote_is_read(connection: psycopg.Connection, schema: str) -> None:
    connection.execute(
        sql.SQL(
            """
            INSERT INTO {}.river_job
                (id, args, kind, state, attempt, attempted_at, attempted_by, errors, metadata, queue, tags, unique_key,
                unique_states, finalized_at)
            VALUES
                (7, '[1, {{"a": 1e400}}]', 'x', 'discarded', 3, '2026-01-02 03:04:05.6789+00', '{{a,"b c"}}',
                ARRAY[CAST(%s AS jsonb), 'null', '"x"', '{{"at": "2026-01-02T03:04:05.678900123-05:00"}}'],
                '{{"a": 1e400, "b": 18446744073709551616}}', '!', '{{"a,b",c}}', %s, B'10000001', now())
            """
        ).format(sql.Identifier(schema)),
        [json.dumps(GOLDENS["attempt_error"]), bytes(range(32))],
    )
    row = Client(None, schema=schema).job_get_tx(connection, 7)
    assert (row.state, row.attempt, row.attempted_by, row.tags) == (JobState.DISCARDED, 3, ["a", "b c"], ["a,b", "c"])
    assert row.metadata == {"a": 10**400, "b": 2**64}
    assert row.unique_key == bytes(range(32))
    assert row.unique_states_text == "10000001"
    assert [each.attempt for each in row.errors] == [3, 0, 0, 0]
    assert [each.error for each in row.errors] == [GOLDENS["attempt_error"]["error"], "null", '"x"', ""]
    local = row.errors[3].at
    assert local is not None
    assert local == datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=timezone(-timedelta(hours=5)))


def test_a_job_that_is_not_there_is_not_found(connection: psycopg.Connection, schema: str) -> None:
    with pytest.raises(JobNotFoundError, match="job 12345 "):
        Client(None, schema=schema).job_get_tx(connection, 12345)
    assert connection.execute("SELECT 1").fetchone() == (1,)
