"""Which kinds a client works: those that have a worker, their aliases, and with fetch_only_known_kinds no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import attrs
import msgspec
import psycopg
import pydantic
import pytest

from river import (
    Client,
    ConfigurationError,
    Job,
    JobArgs,
    UnknownJobKindError,
    WorkContext,
    Worker,
    Workers,
)
from tests.support.clients import (
    ASYNCIO,
    BLOCKING,
    LISTENING,
    NATURAL_WAYS,
    Note,
    Way,
    eventually,
    named,
    workers_of,
    working,
)

both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)


@dataclass
class Mail:
    kind: ClassVar[str] = "mail"
    kind_aliases: ClassVar[list[str]] = ["mail_v1", "Mailer::Job"]
    to: str = ""


@attrs.define
class AttrsMail:
    kind: ClassVar[str] = "mail"
    kind_aliases: ClassVar[tuple[str, ...]] = ("mail_v1",)
    to: str = ""


class StructMail(msgspec.Struct):
    kind: ClassVar[str] = "mail"
    kind_aliases: ClassVar[tuple[str, ...]] = ("mail_v1",)
    to: str = ""


class ModelMail(pydantic.BaseModel):
    kind: ClassVar[str] = "mail"
    kind_aliases: ClassVar[tuple[str, ...]] = ("mail_v1",)
    to: str = ""


class MailWorker(Worker[Mail]):
    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def work(self, job: Job[Mail], ctx: WorkContext) -> None:
        self.seen.append((job.kind, job.args))


def snapshot(workers: Workers) -> dict[str, Any]:
    return {kind: workers.get(kind) for kind in workers}


# Aliases


@both
async def test_jobs_of_a_kinds_aliases_are_worked_by_its_worker_and_keep_their_kind(
    database_url: str, schema: str, way: Way
) -> None:
    worker, workers = MailWorker(), Workers()
    workers.add(worker, aliases=["post"])
    async with working(way, database_url, schema, workers=workers) as bench:
        kinds = ("mail", "mail_v1", "Mailer::Job", "post")
        ids = [bench.jobs.add(kind=kind, args='{"to": "me"}') for kind in kinds]
        for job_id, kind in zip(ids, kinds, strict=True):
            row = await bench.jobs.until(job_id, "completed")
            assert (row["kind"], row["attempt"]) == (kind, 1)
            assert (await bench.get(job_id)).kind == kind
    assert sorted(worker.seen) == sorted((kind, Mail("me")) for kind in kinds)


@pytest.mark.parametrize("args_type", [Mail, AttrsMail, StructMail, ModelMail])
def test_an_args_class_of_any_library_may_name_aliases(args_type: Any) -> None:
    def work(job: Any, ctx: WorkContext) -> None:
        """Work nothing."""

    work.__annotations__["job"] = Job[args_type]
    workers = Workers()
    workers.work(aliases=["post"])(work)
    assert {"mail", "mail_v1", "post"} <= set(workers)
    registration = workers.get("mail_v1")
    assert registration is not None
    assert registration is workers.get("mail") is workers.get("post")
    assert registration.kind == "mail"
    assert registration.codec.decode('{"to": "me"}') == args_type(to="me")


def test_args_without_a_class_may_have_aliases_too() -> None:
    workers = Workers()

    @workers.work(kind="event", aliases=("event_v1",))
    def work(job: Job[Any], ctx: WorkContext) -> None:
        """Work nothing."""

    assert list(workers) == ["event", "event_v1"]
    assert "event_v1" in workers
    assert len(workers) == 2


def test_an_alias_is_a_known_kind_when_its_jobs_are_inserted(database_url: str, schema: str) -> None:
    workers = Workers()
    workers.add(MailWorker())
    client = Client(None, schema=schema, workers=workers)
    with psycopg.connect(database_url) as connection:
        assert client.insert_tx(connection, JobArgs("mail_v1", {})).job.kind == "mail_v1"
        with pytest.raises(UnknownJobKindError, match="mail_v2"):
            client.insert_tx(connection, JobArgs("mail_v2", {}))


@dataclass
class Post:
    kind: ClassVar[str] = "post"
    kind_aliases: ClassVar[list[str]] = ["letter", "mail_v1"]


class PostWorker(Worker[Post]):
    def work(self, job: Job[Post], ctx: WorkContext) -> None:
        """Work nothing."""


@dataclass
class Letter:
    kind: ClassVar[str] = "letter"


class LetterWorker(Worker[Letter]):
    def work(self, job: Job[Letter], ctx: WorkContext) -> None:
        """Work nothing."""


@pytest.mark.parametrize(
    ("worker", "aliases", "said"),
    [
        (PostWorker(), (), "worker for kind 'mail_v1' is already registered: .*MailWorker"),
        (LetterWorker(), ["mail"], "worker for kind 'mail' is already registered: .*MailWorker"),
        (LetterWorker(), ["memo", "mail_v1"], "worker for kind 'mail_v1' is already registered: .*MailWorker"),
        (LetterWorker(), ["memo", "memo"], "alias 'memo' of kind 'letter' is given twice"),
        (LetterWorker(), ["letter"], "alias 'letter' of kind 'letter' is given twice, or is the kind itself"),
        (LetterWorker(), ["memo", "a b"], "alias of kind 'letter': 'a b' is no kind"),
        (LetterWorker(), ["memo", ""], "alias of kind 'letter': '' is no kind"),
        (LetterWorker(), ["m" * 128], "is no kind: .*127 at most"),
        (LetterWorker(), [7], "alias of kind 'letter': 7 is no kind"),
        (LetterWorker(), "memo", "aliases of kind 'letter' must be a list of kinds, not 'memo'"),
        (LetterWorker(), None, "aliases of kind 'letter' must be a list of kinds, not None"),
    ],
)
def test_an_alias_that_cannot_be_is_refused_and_leaves_the_registry_as_it_was(
    worker: Worker[Any], aliases: Any, said: str
) -> None:
    workers = Workers()
    workers.add(MailWorker())
    before = snapshot(workers)
    with pytest.raises(ConfigurationError, match=said):
        workers.add(worker, aliases=aliases)
    assert snapshot(workers) == before
    workers.add(LetterWorker())
    assert "letter" in workers


def test_a_kind_that_is_an_alias_of_another_is_refused() -> None:
    workers = Workers()
    workers.add(LetterWorker(), aliases=["mail"])
    before = snapshot(workers)
    with pytest.raises(ConfigurationError, match="worker for kind 'mail' is already registered"):
        workers.add(MailWorker())
    assert snapshot(workers) == before


class Textual:
    """Its aliases are a text, which is no list of its letters."""

    kind = "textual"
    kind_aliases = "abc"

    def to_json(self) -> str:
        return "{}"

    @classmethod
    def from_json(cls, text: str) -> Textual:
        return cls()


def test_aliases_of_an_args_class_must_be_a_list() -> None:
    workers = Workers()

    def work(job: Job[Textual], ctx: WorkContext) -> None:
        """Work nothing."""

    work.__annotations__["job"] = Job[Textual]
    with pytest.raises(ConfigurationError, match="kind_aliases of kind 'textual' must be a list of kinds, not 'abc'"):
        workers.work()(work)
    assert len(workers) == 0


# Only what is known


@pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
async def test_jobs_of_other_kinds_stay_available_and_cost_no_attempt(database_url: str, schema: str, way: Way) -> None:
    workers = workers_of("def", lambda job, ctx: None)
    odd = 'it\'s "odd" \\ {0} %s :x'
    workers.work(kind="other", aliases=["other_v1"])(lambda job, ctx: None)
    async with working(way, database_url, schema, workers=workers, fetch_only_known_kinds=True) as bench:
        strange = [bench.jobs.add(kind=kind) for kind in ("strange", odd, "Note", "not")]
        known = [bench.jobs.add(kind=kind) for kind in ("note", "other", "other_v1")]
        for job_id in known:
            await bench.jobs.until(job_id, "completed")
        for job_id in strange:
            row = bench.jobs.row(job_id)
            assert (row["state"], row["attempt"], row["attempted_by"], row["errors"]) == ("available", 0, None, None)


async def test_known_jobs_behind_many_of_other_kinds_are_found(database_url: str, schema: str) -> None:
    workers = workers_of("def", lambda job, ctx: None)
    queues: Any = {"default": 3}
    options: Any = {"workers": workers, "queues": queues, "fetch_only_known_kinds": True}
    async with working(ASYNCIO, database_url, schema, **options) as bench:
        bench.jobs.execute(
            "INSERT INTO {job} (kind, args, max_attempts, priority) SELECT 'strange', '{{}}', 1, 1 "
            "FROM generate_series(1, 5000)"
        )
        ids = [bench.jobs.add(priority=4) for _ in range(20)]
        for job_id in ids:
            await bench.jobs.until(job_id, "completed")
        assert bench.jobs.states() == {"available": 5000, "completed": 20}


async def test_a_job_of_another_kind_is_still_there_for_the_client_that_knows_it(
    database_url: str, schema: str
) -> None:
    other = Workers()
    other.add(MailWorker())
    options: Any = {"fetch_only_known_kinds": True, "fetch_poll_interval": 0.05, "fetch_cooldown": 0.01}
    url = named(database_url, schema)
    notes = workers_of("def", lambda job, ctx: None)
    async with working(BLOCKING, database_url, schema, through=url, workers=notes, **options) as bench:
        await eventually(lambda: bench.jobs.sessions(schema, LISTENING), "it listens")
        mail = bench.jobs.add(kind="mail_v1")
        await bench.jobs.until(await bench.insert(Note()), "completed")
        assert bench.jobs.row(mail)["state"] == "available"
        async with working(ASYNCIO, database_url, schema, workers=other, **options):
            row = await bench.jobs.until(mail, "completed")
    assert row["attempt"] == 1


async def test_without_the_option_a_job_of_another_kind_costs_an_attempt(database_url: str, schema: str) -> None:
    workers = workers_of("def", lambda job, ctx: None)
    async with working(ASYNCIO, database_url, schema, workers=workers) as bench:
        job_id = bench.jobs.add(kind="strange", max_attempts=1)
        row = await bench.jobs.until(job_id, "discarded")
    assert "strange" in row["errors"][0]["error"]
