"""The registry of workers: which args a worker works is found in its annotation, or the error says what to write."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, TypeVar

import pytest

import river
from river import ConfigurationError, Job, JobArgs, WorkContext, Worker, Workers

if typing.TYPE_CHECKING:
    from elsewhere import Unimported  # type: ignore[import-not-found]

T = TypeVar("T")


@dataclass
class Mail:
    kind: ClassVar[str] = "mail"
    to: str = ""


@dataclass
class Note:
    kind: ClassVar[str] = "note"


@dataclass
class Kindless:
    number: int


class Unusable:
    kind = "unusable"


@dataclass
class Box(Generic[T]):
    kind: ClassVar[str] = "box"
    value: T


def work_mail(job: Job[Mail], ctx: WorkContext) -> None:
    """Work nothing."""


async def work_note(job: river.Job[Note], ctx: river.WorkContext) -> None:
    """Work nothing."""


class MailWorker(Worker[Mail]):
    def work(self, job: Job[Mail], ctx: WorkContext) -> None:
        """Work nothing."""


class NoteWorker(Worker[Note]):
    async def work(self, job: Job[Note], ctx: WorkContext) -> None:
        """Work nothing."""

    def next_retry(self, job: Job[Note]) -> datetime | None:
        return datetime(2026, 1, 1, tzinfo=UTC)


def registered(worker: Any) -> Workers:
    workers = Workers()
    if isinstance(worker, Worker):
        workers.add(worker)
    else:
        workers.work()(worker)
    return workers


def test_the_args_class_comes_from_the_annotation_of_the_first_parameter() -> None:
    workers = registered(work_mail)
    registration = workers.get("mail")
    assert registration is not None
    assert registration.codec.decode('{"to": "me"}') == Mail("me")
    assert (registration.call, registration.is_async, registration.next_retry) == (work_mail, False, None)


def test_a_decorated_function_stays_what_it_was() -> None:
    workers = Workers()
    assert workers.work()(work_mail) is work_mail
    assert workers.work(kind="other")(work_mail) is work_mail


@pytest.mark.parametrize(("worker", "is_async"), [(work_note, True), (NoteWorker(), True), (MailWorker(), False)])
def test_an_async_def_is_known_as_one(worker: Any, is_async: bool) -> None:
    (kind,) = workers = registered(worker)
    registration = workers.get(kind)
    assert registration is not None
    assert registration.is_async is is_async


def test_a_worker_class_says_its_args_as_its_parameter() -> None:
    worker = NoteWorker()
    registration = registered(worker).get("note")
    assert registration is not None
    assert registration.codec.decode("{}") == Note()
    assert registration.call == worker.work
    assert registration.next_retry == worker.next_retry


def test_a_worker_without_its_own_next_retry_has_none() -> None:
    registration = registered(MailWorker()).get("mail")
    assert registration is not None
    assert registration.next_retry is None
    assert MailWorker().next_retry(typing.cast("Job[Mail]", None)) is None


class UrgentMailWorker(MailWorker):
    """Inherits everything."""


class Mixin:
    """Not a worker."""


class MixedMailWorker(Mixin, UrgentMailWorker):
    def next_retry(self, job: Job[Mail]) -> datetime | None:
        return None


@pytest.mark.parametrize("worker", [UrgentMailWorker(), MixedMailWorker()])
def test_a_subclass_of_a_worker_works_its_parents_args(worker: Worker[Any]) -> None:
    assert list(registered(worker)) == ["mail"]


class Countdown(Worker[T]):
    def work(self, job: Job[T], ctx: WorkContext) -> None:
        """Work nothing."""


class MailCountdown(Countdown[Mail]):
    """Says its args one class further down."""


class Unsaid(Worker):
    """Does not say its args."""


@pytest.mark.parametrize("worker", [Countdown(), Unsaid()])
def test_a_worker_class_that_does_not_say_its_args_is_told_what_to_write(worker: Worker[Any]) -> None:
    workers = Workers()
    with pytest.raises(ConfigurationError, match=r"river\.Worker\[YourArgs\]") as raised:
        workers.add(worker)
    assert type(worker).__qualname__ in str(raised.value)
    assert len(workers) == 0


def test_a_generic_worker_class_may_leave_its_args_to_a_subclass() -> None:
    assert list(registered(MailCountdown())) == ["mail"]


def test_a_class_or_a_function_is_no_worker_to_add() -> None:
    workers = Workers()
    for thing in (MailWorker, work_mail, None, Mail()):
        with pytest.raises(ConfigurationError):
            workers.add(typing.cast("Worker[Any]", thing))
    assert len(workers) == 0


def without_annotation(job, ctx):  # type: ignore[no-untyped-def]
    """Work nothing."""


def without_parameters() -> None:
    """Work nothing."""


def with_a_bare_job(job: Job, ctx: WorkContext) -> None:
    """Work nothing."""


def with_the_args_alone(job: Mail, ctx: WorkContext) -> None:
    """Work nothing."""


def with_another_generic(job: list[Mail], ctx: WorkContext) -> None:
    """Work nothing."""


def with_an_optional_job(job: Job[Mail] | None, ctx: WorkContext) -> None:
    """Work nothing."""


def with_a_union(job: Job[Mail | Note], ctx: WorkContext) -> None:
    """Work nothing."""


def with_anything(job: Job[Any], ctx: WorkContext) -> None:
    """Work nothing."""


def with_a_variable(job: Job[T], ctx: WorkContext) -> None:
    """Work nothing."""


def with_a_parameterised_class(job: Job[Box[int]], ctx: WorkContext) -> None:
    """Work nothing."""


def with_an_unknown_name(job: Job[Unimported], ctx: WorkContext) -> None:
    """Work nothing."""


def with_a_kindless_class(job: Job[Kindless], ctx: WorkContext) -> None:
    """Work nothing."""


def with_an_unusable_class(job: Job[Unusable], ctx: WorkContext) -> None:
    """Work nothing."""


def with_a_plain_mapping(job: Job[dict], ctx: WorkContext) -> None:  # type: ignore[type-arg]
    """Work nothing."""


def with_job_args(job: Job[JobArgs], ctx: WorkContext) -> None:
    """Work nothing."""


def test_a_function_is_registered_with_or_without_parentheses() -> None:
    workers = Workers()
    assert workers.work(work_mail) is work_mail
    assert list(workers) == ["mail"]


def one_parameter(job: Job[Mail]) -> None:
    """Work nothing."""


def three_parameters(job: Job[Mail], ctx: WorkContext, more: int) -> None:
    """Work nothing."""


@pytest.mark.parametrize("function", [one_parameter, three_parameters])
def test_a_worker_that_cannot_be_called_with_a_job_and_a_context_is_refused(function: Callable[..., Any]) -> None:
    workers = Workers()
    with pytest.raises(ConfigurationError, match="is called with two arguments, but cannot be"):
        workers.work(function)
    assert list(workers) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_annotation, "annotate its first parameter as river.Job"),
        (without_parameters, r"must take \(job: river.Job"),
        (with_a_bare_job, "annotate its first parameter as river.Job"),
        (with_the_args_alone, "annotate its first parameter as river.Job"),
        (with_another_generic, "annotate its first parameter as river.Job"),
        (with_an_optional_job, "annotate its first parameter as river.Job"),
        (with_a_union, "annotate its first parameter as river.Job"),
        (with_anything, "Any cannot be a job's args"),
        (with_a_variable, "annotate its first parameter as river.Job"),
        (with_a_parameterised_class, "annotate its first parameter as river.Job"),
        (with_an_unknown_name, "Unimported"),
        (with_a_kindless_class, "Kindless has no kind"),
        (with_an_unusable_class, "Unusable cannot be a job's args"),
        (with_a_plain_mapping, "dict cannot be a job's args"),
        (with_job_args, "JobArgs has no kind"),
        (functools.partial(work_mail), "annotations of functools.partial.* cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_annotation_that_does_not_name_the_args_is_an_error_that_says_what_to_write(
    function: Callable[..., Any], message: str
) -> None:
    workers = Workers()
    with pytest.raises(ConfigurationError, match=message):
        workers.work()(function)
    assert list(workers) == []


def test_an_annotation_of_a_local_class_as_text_is_an_error_that_names_the_class() -> None:
    @dataclass
    class Local:
        kind: ClassVar[str] = "local"

    def work(job: Job[Local], ctx: WorkContext) -> None:
        """Work nothing."""

    with pytest.raises(ConfigurationError, match="Local"):
        Workers().work()(work)
    # The same annotation, evaluated, as it is without `from __future__ import annotations`.
    work.__annotations__["job"] = Job[Local]
    assert list(registered(work)) == ["local"]


def test_methods_and_decorated_functions_are_workers() -> None:
    class Service:
        def work(self, job: Job[Mail], ctx: WorkContext) -> None:
            """Work nothing."""

    @functools.wraps(work_note)
    async def wrapped(*args: Any) -> None:
        await work_note(*args)

    workers = Workers()
    workers.work()(Service().work)
    workers.work()(wrapped)
    assert list(workers) == ["mail", "note"]


def test_a_kind_makes_a_worker_of_plain_mappings() -> None:
    workers = Workers()
    workers.work(kind="plain")(lambda job, ctx: None)
    registration = workers.get("plain")
    assert registration is not None
    assert registration.codec.decode('{"a": 18446744073709551616}') == {"a": 2**64}
    assert registration.codec.decode("[1]") == [1]


def test_a_kind_has_one_worker() -> None:
    workers = registered(work_mail)
    for add in (
        lambda: workers.work()(work_mail),
        lambda: workers.add(MailWorker()),
        lambda: workers.work(kind="mail")(work_note),
    ):
        with pytest.raises(ConfigurationError, match="worker for kind 'mail' is already registered"):
            add()
    registration = workers.get("mail")
    assert registration is not None
    assert registration.call is work_mail
    assert len(workers) == 1


KINDS = ["ab", "a1", "_a", "a-", "a[b]<c>/d.e·f:g+h", "Mail", "k" * 127]
BAD_KINDS = ["a", "-a", "[a", "a b", "a,b", "ä!", "éé", "ab\n", "a\x00b", "a*"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_rivers_is_accepted(kind: str) -> None:
    workers = Workers()
    workers.work(kind=kind)(work_mail)
    assert kind in workers


@pytest.mark.parametrize("kind", BAD_KINDS)
def test_a_kind_that_breaks_rivers_rule_is_refused_with_the_rule(kind: str) -> None:
    workers = Workers()
    with pytest.raises(ConfigurationError, match="is no kind: 2 or more letters, digits") as raised:
        workers.work(kind=kind)(work_mail)
    assert repr(kind) in str(raised.value)
    with pytest.raises(ConfigurationError, match="is no kind"):
        workers.add(type("Odd", (MailWorker,), {"__orig_bases__": (Worker[type("A", (Mail,), {"kind": kind})],)})())  # type: ignore[misc]
    assert len(workers) == 0


def test_an_empty_kind_is_not_taken_for_a_kind() -> None:
    with pytest.raises(ConfigurationError):
        Workers().work(kind="")(work_mail)


def test_the_registry_is_a_collection_of_kinds() -> None:
    workers = registered(work_mail)
    workers.work()(work_note)
    assert list(workers) == ["mail", "note"]
    assert len(workers) == 2
    assert "mail" in workers
    assert "other" not in workers
    assert 5 not in workers
    assert workers.get("other") is None
    assert list(Workers()) == []


def test_a_worker_class_without_work_says_so_when_it_is_worked() -> None:
    class Idle(Worker[Mail]):
        pass

    registration = registered(Idle()).get("mail")
    assert registration is not None
    with pytest.raises(NotImplementedError):
        registration.call(typing.cast("Job[Any]", None), typing.cast("WorkContext", None))
