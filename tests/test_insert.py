"""The rules of an insert: whose option wins, what is refused and how, and that a refusal writes nothing."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import (
    AsyncClient,
    Client,
    InsertManyParams,
    InsertOpts,
    InvalidArgsError,
    InvalidJobError,
    JobArgs,
    JobRow,
    JobState,
    UniqueOpts,
    UnknownJobKindError,
    Workers,
)
from river.insert import InsertParams, check_queue_name, instant_text, merge_options, prepare
from tests.test_operation import AsyncScript, Script, adoptable, inserted, untimed

AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
LATER = AT + timedelta(days=1)


@dataclass
class Note:
    kind: ClassVar[str] = "note"
    number: int = 1


@dataclass
class Mail:
    kind: ClassVar[str] = "mail"
    insert_opts: ClassVar[InsertOpts] = InsertOpts(
        queue="mail", priority=2, max_attempts=5, scheduled_at=AT, tags=["declared"], metadata={"declared": 1}
    )


@dataclass
class Urgent:
    """Options that depend on the args."""

    kind: ClassVar[str] = "urgent"
    rank: int

    def insert_opts(self) -> InsertOpts:
        return InsertOpts(priority=self.rank)


def prepared(args: Any = None, opts: InsertOpts | None = None, **options: Any) -> InsertParams:
    return prepare(args or Note(), merge_options(opts, options), max_attempts=25, now=datetime.now(UTC))  # type: ignore[arg-type]


@pytest.fixture
def handle() -> Iterator[Script]:
    """A handle on which every statement is one too many."""
    with adoptable():
        yield Script()


def test_what_nobody_says_is_rivers_default() -> None:
    params = prepared(Note(7))
    assert params == InsertParams(
        args=Note(7),
        kind="note",
        encoded_args='{"number":7}',
        queue="default",
        priority=1,
        max_attempts=25,
        scheduled_at=None,
        tags=[],
        metadata={},
    )
    assert params.state is JobState.AVAILABLE


def test_the_args_class_wins_over_the_client() -> None:
    params = prepared(Mail())
    assert (params.queue, params.priority, params.max_attempts, params.scheduled_at, params.state, params.tags) == (
        "mail",
        2,
        5,
        AT,
        JobState.SCHEDULED,
        ["declared"],
    )
    assert params.metadata == {"declared": 1}


def test_the_call_wins_over_the_args_class() -> None:
    params = prepared(
        Mail(), queue="q", priority=4, max_attempts=1, scheduled_at=LATER, tags=["called"], metadata={"a": 1}
    )
    assert (params.queue, params.priority, params.max_attempts, params.scheduled_at, params.tags, params.metadata) == (
        "q",
        4,
        1,
        LATER,
        ["called"],
        {"a": 1},
    )


def test_tags_of_the_call_win_also_when_there_are_none() -> None:
    assert prepared(Mail(), tags=[]).tags == []


def test_the_clients_max_attempts_stands_in_for_those_of_call_and_class(handle: Script) -> None:
    client = Client(None, max_attempts=7)
    script = Script(inserted, inserted, inserted)
    assert client.insert_tx(script, Note()).job.max_attempts == 7
    assert client.insert_tx(script, Mail()).job.max_attempts == 5
    assert client.insert_tx(script, Mail(), max_attempts=6).job.max_attempts == 6


def test_an_instance_may_declare_its_options() -> None:
    assert prepared(Urgent(3)).priority == 3
    with pytest.raises(InvalidJobError, match=r"priority .* not 9"):
        prepared(Urgent(9))


@pytest.mark.parametrize("declared", [{"queue": "q"}, "q", 5])
def test_declared_options_of_another_type_are_refused(declared: Any) -> None:
    args = type("Odd", (Note,), {"insert_opts": declared})()
    with pytest.raises(InvalidJobError, match=r"insert_opts of 'note' must be river\.InsertOpts"):
        prepared(args)


def test_the_keywords_and_the_object_are_the_same_options() -> None:
    assert prepared(opts=InsertOpts(queue="q", priority=2)) == prepared(queue="q", priority=2)
    assert prepared(opts=InsertOpts(queue="q"), priority=2) == prepared(queue="q", priority=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("queue", "q"), ("priority", 2), ("max_attempts", 3), ("scheduled_at", AT), ("tags", []), ("metadata", {})],
)
def test_naming_an_option_both_ways_is_an_error(handle: Script, name: Any, value: Any) -> None:
    opts = InsertOpts(**{name: value})
    with pytest.raises(InvalidJobError, match=f"option '{name}' is given twice, in opts and as a keyword"):
        Client(None).insert_tx(handle, Note(), opts, **{name: value})
    assert handle.asked == []


def test_an_unknown_option_is_refused_with_a_hint_and_writes_nothing(handle: Script) -> None:
    client: Any = Client(None)
    for opts in (None, InsertOpts(queue="q")):
        with pytest.raises(InvalidJobError, match="no option 'prio'; did you mean 'priority'"):
            client.insert_tx(handle, Note(), opts, prio=1)
    assert handle.asked == []


QUEUES = ["a", "0", "default", "a-b_c", "a|b", "q" * 64, "1-2-3"]
BAD_QUEUES = ["", "A", "a--b", "-a", "a-", "a_-b", "a b", "a.b", "é", "a\n", "q" * 65, "a\x00", "\ud800", " a", 5, b"a"]


@pytest.mark.parametrize("queue", QUEUES)
def test_a_queue_name_of_rivers_is_accepted(queue: str) -> None:
    assert prepared(queue=queue).queue == queue


TAGS = ["abc", "a-c", "a_c", "___", "a" * 255, "a--c", "A0z"]
BAD_TAGS = ["", "a", "ab", "-bc", "ab-", "a,c", "a c", "äbc", "abc\n", "a" * 256, "ab\x00", "\ud800bc", 5, None, b"abc"]


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_of_rivers_is_accepted(tag: str) -> None:
    assert prepared(tags=["one", tag]).tags == ["one", tag]


OUT_OF_YEARS = [
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=1))),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    *[({"queue": queue}, "queue .* is no queue name: 1 to 64 lower-case letters and digits") for queue in BAD_QUEUES],
    *[({"tags": [tag]}, "tag .* is no tag: 3 to 255 ASCII letters") for tag in BAD_TAGS],
    *[({"tags": tags}, "tags must be a list of texts, not") for tags in ("abc", 5)],
    *[
        ({"priority": priority}, "priority must be a whole number from 1 to 4, not")
        for priority in (0, 5, -1, "1", 1.0, True, 2**70)
    ],
    *[
        ({"max_attempts": most}, "max_attempts must be a whole number from 1 to 32,767, not")
        for most in (0, -1, 32_768, "1", 1.5, False, 2**70)
    ],
    *[
        ({"scheduled_at": at}, "scheduled_at must be an aware datetime, not")
        for at in (datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 5, AT.date())  # noqa: DTZ001
    ],
    *[({"scheduled_at": at}, "leads outside of the years 1 to 9999") for at in OUT_OF_YEARS],
    *[({"metadata": value}, "metadata must be a JSON object, not") for value in ([1], "x", 5, [("a", 1)], b"{}")],
    ({"metadata": {"x": "a\x00"}}, r"metadata cannot be stored: field 'x' holds U\+0000"),
    ({"metadata": {"a\x00": 1}}, "metadata cannot be stored: .* the key"),
    ({"metadata": {"é": {"y": "\ud800"}}}, "metadata cannot be stored: field 'é.y' holds half a surrogate pair"),
    ({"metadata": {"\ud800": 1}}, "metadata cannot be stored: .* the key"),
    ({"metadata": {"x": [float("nan")]}}, r"metadata is no JSON object: field 'x\[0\]' is nan"),
    ({"metadata": {"x": float("-inf")}}, "metadata is no JSON object: field 'x' is -inf"),
    ({"metadata": {"x": object()}}, "metadata is no JSON object: field 'x' is a object"),
    ({"metadata": {1: 2}}, "metadata cannot be stored: a value has the key 1, which is no string"),
    ({"metadata": {"x": {None: 2}}}, "metadata cannot be stored: field 'x' has the key None"),
    ({"metadata": {"x": 10**5000}}, "digits"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: "" if isinstance(value, str) else None)
def test_what_breaks_a_rule_is_refused_with_the_value_and_the_rule_before_any_statement(
    handle: Script, options: Any, message: str
) -> None:
    client = Client(None)
    with pytest.raises(InvalidJobError, match=message) as raised:
        client.insert_tx(handle, Note(), **options)
    (value,) = options.values()
    if not isinstance(value, dict | list):
        assert type(value).__name__ in str(raised.value) or repr(value) in str(raised.value)
    with pytest.raises(InvalidJobError, match=message):
        client.insert_many_tx(handle, [Note(), InsertManyParams(Note(), InsertOpts(**options))])
    assert handle.asked == []


def test_metadata_that_holds_itself_is_refused(handle: Script) -> None:
    metadata: dict[str, Any] = {}
    metadata["self"] = metadata
    with pytest.raises(InvalidJobError, match="nested too deeply, or holds itself"):
        Client(None).insert_tx(handle, Note(), metadata=metadata)
    assert handle.asked == []


def test_any_mapping_will_do_as_metadata() -> None:
    assert prepared(metadata=types.MappingProxyType({"a": 1})).metadata == {"a": 1}


def test_the_hosts_own_lists_are_not_kept() -> None:
    tags, metadata = ["abc"], {"a": 1}
    params = prepared(tags=tags, metadata=metadata)
    tags.append("-")
    metadata["b"] = 2
    assert (params.tags, params.metadata) == (["abc"], {"a": 1})


def test_a_long_queue_name_is_refused_as_quickly_as_a_short_one() -> None:
    """A pattern that backtracks would take years; a thousand names in the test's timeout is enough to tell."""
    for _ in range(1_000):
        with pytest.raises(InvalidJobError):
            check_queue_name("a" * 63 + "!")


@untimed
@given(st.text("ab0_-|A.", max_size=70))
def test_the_rule_of_queue_names_is_that_of_rivers_pattern(name: str) -> None:
    separators = "_-|"
    valid = (
        0 < len(name) <= 64
        and set(name) <= set("ab0" + separators)
        and name[0] not in separators
        and name[-1] not in separators
        and not any(a in separators and b in separators for a, b in itertools.pairwise(name))
    )
    try:
        check_queue_name(name)
    except InvalidJobError:
        assert not valid
    else:
        assert valid


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("", "must be a text of 1 to 127 characters"),
        ("k" * 128, "must be a text of 1 to 127 characters"),
        (5, "kind 5 must be a text of 1 to 127 characters"),
        ("k\x00", "holds U\\+0000"),
        ("k\ud800", "holds half a surrogate pair"),
    ],
)
def test_a_kind_that_cannot_be_stored_is_refused(handle: Script, kind: Any, message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        Client(None).insert_tx(handle, JobArgs(kind, {}))
    assert handle.asked == []


@pytest.mark.parametrize("kind", ["k", "k" * 127, "ä b!", "é" * 127])
def test_a_client_without_workers_leaves_the_form_of_a_kind_to_others(kind: str) -> None:
    assert prepared(JobArgs(kind, {})).kind == kind


@pytest.mark.parametrize("args", [Inner := type("Inner", (), {}), {}, None, 5, "note"], ids=repr)
def test_something_without_a_kind_is_refused(handle: Script, args: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"no kind|is a class"):
        Client(None).insert_tx(handle, args)
    assert handle.asked == []


def test_a_class_instead_of_its_instance_is_refused(handle: Script) -> None:
    args: Any = Note
    with pytest.raises(InvalidJobError, match="Note is a class: insert an instance of it"):
        Client(None).insert_tx(handle, args)
    assert handle.asked == []


@pytest.mark.parametrize(
    "at", [AT, datetime(1970, 1, 1, tzinfo=UTC), datetime(2500, 1, 1, tzinfo=timezone(timedelta(hours=14)))]
)
def test_a_job_with_a_time_is_scheduled_also_in_the_past(at: datetime) -> None:
    params = prepared(scheduled_at=at)
    assert (params.state, params.scheduled_at) == (JobState.SCHEDULED, at)


@untimed
@given(st.datetimes(timezones=st.timezones()))
def test_an_instant_is_written_in_utc_and_without_loss(at: datetime) -> None:
    try:
        text = instant_text(at)
    except OverflowError:
        with pytest.raises(InvalidJobError, match="outside of the years"):
            prepared(scheduled_at=at)
    else:
        assert text.endswith("+00:00")
        assert datetime.fromisoformat(text) == at.astimezone(UTC)


def with_workers() -> Workers:
    workers = Workers()
    workers.work(kind="mail")(lambda job, ctx: None)
    return workers


def test_a_client_with_workers_refuses_a_kind_that_has_none(handle: Script) -> None:
    client = Client(None, workers=with_workers())
    with pytest.raises(UnknownJobKindError, match="not registered in the client's Workers bundle: note") as raised:
        client.insert_tx(handle, Note())
    assert raised.value.kind == "note"
    assert "known here: mail" in str(raised.value)
    with pytest.raises(UnknownJobKindError):
        client.insert_many_tx(handle, [Mail(), Note()])
    assert handle.asked == []


def test_a_client_whose_workers_are_still_to_come_refuses_every_kind(handle: Script) -> None:
    with pytest.raises(UnknownJobKindError):
        Client(None, workers=Workers()).insert_tx(handle, Note())
    assert handle.asked == []


def test_the_check_for_a_worker_can_be_left_out(handle: Script) -> None:
    client = Client(None, workers=with_workers(), skip_unknown_job_check=True)
    assert client.insert_tx(Script(inserted), Note()).job.kind == "note"
    assert Client(None, workers=with_workers()).insert_tx(Script(inserted), Mail()).job.kind == "mail"


@pytest.mark.parametrize("batch", [[], (), iter([])])
def test_an_empty_batch_is_refused(handle: Script, batch: Any) -> None:
    with pytest.raises(InvalidJobError, match="the batch is empty"):
        Client(None).insert_many_tx(handle, batch)
    assert handle.asked == []


def test_a_batch_may_be_a_generator_and_mixes_args_with_params(handle: Script) -> None:
    batch = (Note(n) if n % 2 else InsertManyParams(Mail(), InsertOpts(queue=f"q{n}")) for n in range(3))
    results = Client(None).insert_many_tx(Script(inserted), batch)
    assert [(each.job.kind, each.job.queue, each.job.args) for each in results] == [
        ("mail", "q0", Mail()),
        ("note", "default", Note(1)),
        ("mail", "q2", Mail()),
    ]


async def test_an_asyncio_handle_is_refused_the_same_and_asked_nothing_before_the_await() -> None:
    with adoptable():
        script = AsyncScript(inserted)
        client = AsyncClient(None)
        with pytest.raises(InvalidJobError, match="priority"):
            await client.insert_tx(script, Note(), priority=9)
        with pytest.raises(InvalidArgsError, match="number"):
            await client.insert_many_tx(script, [Note("x")])  # type: ignore[arg-type]
        assert script.asked == []
        insertion = client.insert_tx(script, Note(5))
        await asyncio.sleep(0)
        assert script.asked == []
        result = await insertion
        assert (result.job.args, result.duplicate) == (Note(5), False)
        assert len(script.asked) == 1


def test_the_result_has_the_hosts_own_args_and_the_row(handle: Script) -> None:
    args = Note(3)
    result = Client(None).insert_tx(Script(inserted), args)
    assert result.job.args is args
    assert isinstance(result.job, JobRow)
    assert json.loads(result.job.encoded_args) == {"number": 3}
    assert not result.duplicate


def test_a_job_in_no_list_of_its_own_takes_one_statement(handle: Script) -> None:
    script = Script(inserted)
    Client(None).insert_many_tx(script, [Note(n) for n in range(1_000)])
    assert len(script.asked) == 1


class Queue(str, enum.Enum):  # noqa: UP042 - that is the case
    """As many programs write what Python 3.11 has StrEnum for; formatted, a member is its name."""

    MAIL = "mail"
    KIND = "sync_mail"
    TAG = "tag-a"


class Urgency(enum.IntEnum):
    HIGH = 2


def test_members_of_enumerations_are_what_they_stand_for() -> None:
    plain = prepared(JobArgs("sync_mail", {}), queue="mail", tags=["tag-a"], priority=2, max_attempts=2, unique=UNIQUE)
    params = prepared(
        JobArgs(Queue.KIND, {}),
        queue=Queue.MAIL,
        tags=[Queue.TAG],
        priority=Urgency.HIGH,
        max_attempts=Urgency.HIGH,
        unique=UNIQUE,
    )
    assert params.unique_key == plain.unique_key
    found = (params.kind, params.queue, *params.tags, params.priority, params.max_attempts)
    assert found == ("sync_mail", "mail", "tag-a", 2, 2)
    assert {type(value) for value in found} == {str, int}


UNIQUE = UniqueOpts(by_queue=True)


@pytest.mark.parametrize("opts", [{}, {"queue": "x"}, [], "mail", InsertOpts])
def test_what_is_no_insert_opts_is_refused(handle: Script, opts: Any) -> None:
    client = Client(None)
    for refused in (
        lambda: client.insert_tx(handle, Note(), opts),
        lambda: client.insert_tx(handle, Note(), opts, queue="mail"),
        lambda: client.insert_many_tx(handle, [InsertManyParams(Note(), opts)]),
        lambda: client.insert_many_fast_tx(handle, [InsertManyParams(Note(), opts)]),
    ):
        with pytest.raises(InvalidJobError, match=r"opts must be river.InsertOpts\(...\), not "):
            refused()
    assert handle.asked == []


def test_of_a_refused_batch_a_note_says_which_job_it_is(handle: Script) -> None:
    with pytest.raises(InvalidJobError) as raised:
        Client(None).insert_many_tx(handle, [Note(), Note(), InsertManyParams(Note(), InsertOpts(priority=9))])
    assert raised.value.__notes__ == ["It is job 2 of the batch, counted from 0."]
    assert handle.asked == []


class Model(pydantic.BaseModel):
    """Can be iterated, and is no list."""

    kind: ClassVar[str] = "model"
    name: str = "x"


def test_one_model_in_the_place_of_a_list_is_refused(handle: Script) -> None:
    batch: Any = Model()
    with pytest.raises(InvalidJobError, match="takes a list of args, not one Model"):
        Client(None).insert_many_tx(handle, batch)
