"""Whatever is done to jobs, in whatever order: each is in the state that a small model of River's rules says.

The model knows of a job only what decides its fate: its state, its attempts, whether somebody asked for its
cancellation, and its unique key. Hypothesis thinks of what is done, on two drivers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine

from river import Client, JobArgs, JobNotFoundError, JobRow, JobState, UniqueOpts
from river.driver import Driver, is_asyncio
from river.engine.transition import Persisted, Transition
from river.errors import JobNotRunningError, JobRunningError, UniqueConflictError
from river.insert import instant_text
from river.operation import Operation, run
from river.operations import maintain, work
from tests.support.clients import Jobs, jobs_of
from tests.support.urls import with_driver

AVAILABLE, RUNNING, RETRYABLE, SCHEDULED = (
    JobState.AVAILABLE,
    JobState.RUNNING,
    JobState.RETRYABLE,
    JobState.SCHEDULED,
)
COMPLETED, CANCELLED, DISCARDED, PENDING = (
    JobState.COMPLETED,
    JobState.CANCELLED,
    JobState.DISCARDED,
    JobState.PENDING,
)

HOLDING = {AVAILABLE, PENDING, RUNNING, SCHEDULED, COMPLETED}
"""Where a unique job of this test blocks others: as by default, but that one that waits for its retry does not."""

UNIQUE = UniqueOpts(by_args=True, by_state=sorted(HOLDING))
MAX_ATTEMPTS = 3
LONG = 3600.0
IN_THE_PAST = datetime(2026, 1, 1, tzinfo=UTC)
STATES: st.SearchStrategy[JobState] = st.sampled_from(list(JobState))


@dataclass
class Model:
    """What decides a job's fate."""

    state: JobState
    key: str | None
    attempt: int = 0
    max_attempts: int = MAX_ATTEMPTS
    cancel_asked: bool = False
    waits: bool = False
    """Available, but not due for a long time."""

    @property
    def holds(self) -> bool:
        return self.key is not None and self.state in HOLDING


@dataclass
class World:
    """The table, the client that changes it, and what the model thinks of it."""

    client: Client
    driver: Driver
    table: Jobs
    models: dict[int, Model] = field(default_factory=dict[int, Model])

    def run(self, operation: Operation[Any]) -> Any:
        with self.driver.autocommit() as executor:
            return run(executor, operation)

    @property
    def sql(self) -> Any:
        return self.client.sql("postgresql")

    def holder(self, key: str | None) -> int | None:
        return next((job_id for job_id, model in self.models.items() if model.holds and model.key == key), None)


class StateGraph(RuleBasedStateMachine):
    """Does things to jobs."""

    jobs: Bundle[int] = Bundle("jobs")
    claims: Bundle[tuple[int, str]] = Bundle("claims")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.models.clear()
        world.table.execute("TRUNCATE {job}")

    @rule(
        target=jobs,
        key=st.none() | st.sampled_from("ab"),
        options=st.sampled_from(
            [{}, {"pending": True}, {"scheduled_at": datetime(2026, 1, 1, tzinfo=UTC)}, {"delay": LONG}]
        ),
    )
    def insert(self, key: str | None, options: dict[str, Any]) -> int:
        unique = None if key is None else UNIQUE
        args = JobArgs("note", {"key": key})
        result = self.world.client.insert(args, max_attempts=MAX_ATTEMPTS, unique=unique, **options)
        there = None if key is None else self.world.holder(key)
        assert result.duplicate is (there is not None)
        if there is not None:
            assert result.job.id == there
            return there
        state = PENDING if "pending" in options else SCHEDULED if options else AVAILABLE
        self.world.models[result.job.id] = Model(state, key)
        return result.job.id

    @rule(target=claims, limit=st.integers(1, 3))
    def claim(self, limit: int) -> Any:
        claimed = self.world.run(work.claim(self.world.sql, "default", client_id="me", limit=limit))
        due = [job_id for job_id, model in self.world.models.items() if model.state is AVAILABLE and not model.waits]
        assert len(claimed) == min(limit, len(due))
        for job in claimed:
            assert isinstance(job, JobRow)
            assert job.id in due
            model = self.world.models[job.id]
            model.state, model.attempt = RUNNING, model.attempt + 1
        return multiple(*[(job.id, instant_text(job.attempted_at)) for job in claimed])

    @rule(
        claim=claims,
        outcome=st.sampled_from(
            [
                (COMPLETED, None),
                (DISCARDED, None),
                (CANCELLED, None),
                (AVAILABLE, 0.0),
                (AVAILABLE, LONG),
                (RETRYABLE, LONG),
                (SCHEDULED, LONG),
            ]
        ),
        gives_back=st.booleans(),
    )
    def finish(self, claim: tuple[int, str], outcome: tuple[JobState, float | None], gives_back: bool) -> None:
        """End an attempt, perhaps one that is over; a snooze or interruption gives its number back."""
        job_id, attempted_at = claim
        state, delay = outcome
        current = self.holds_claim(job_id, attempted_at)
        model = self.world.models.get(job_id)
        attempt = model.attempt - 1 if model and gives_back and delay is not None else None
        transition = Transition(
            job_id=job_id, attempted_at=attempted_at, state=state, delay_seconds=delay, attempt=attempt
        )
        persisted = self.world.run(work.finish(self.world.sql, [transition]))
        if model is None or not current:
            assert persisted == {job_id: Persisted.LOST}
        elif model.cancel_asked and delay is not None:
            assert persisted == {job_id: Persisted.CANCELLED}
            model.state = CANCELLED
        else:
            assert persisted == {}
            model.state, model.waits = state, state is AVAILABLE and delay == LONG
            model.attempt = model.attempt if attempt is None else attempt

    @rule(claim=consumes(claims), commits=st.booleans())
    def complete_in_a_transaction(self, claim: tuple[int, str], commits: bool) -> None:
        job_id, attempted_at = claim
        current = self.holds_claim(job_id, attempted_at)
        try:
            with self.world.driver.transaction() as executor:
                run(executor, work.complete(self.world.sql, job_id, attempted_at))
                if not commits:
                    raise Withdrawn
        except Withdrawn:
            assert current
        except JobNotFoundError:
            assert job_id not in self.world.models
        except JobNotRunningError:
            assert not current
        else:
            assert current
            self.world.models[job_id].state = COMPLETED

    @rule(job_id=jobs)
    def cancel(self, job_id: int) -> None:
        model = self.world.models.get(job_id)
        if model is None:
            with pytest.raises(JobNotFoundError):
                self.world.client.job_cancel(job_id)
            return
        if not model.state.finalized:
            model.cancel_asked = True
            model.state = RUNNING if model.state is RUNNING else CANCELLED
        assert self.world.client.job_cancel(job_id).state is model.state

    @rule(job_id=jobs)
    def retry(self, job_id: int) -> None:
        model = self.world.models.get(job_id)
        if model is None:
            with pytest.raises(JobNotFoundError):
                self.world.client.job_retry(job_id)
        elif model.key is not None and not model.holds and self.world.holder(model.key) is not None:
            with pytest.raises(UniqueConflictError):
                self.world.client.job_retry(job_id)
        else:
            if model.state is not RUNNING and not (model.state is AVAILABLE and not model.waits):
                model.state, model.waits, model.cancel_asked = AVAILABLE, False, False
                model.max_attempts += model.attempt == model.max_attempts
            assert self.world.client.job_retry(job_id).state is model.state

    @rule(job_id=jobs)
    def delete(self, job_id: int) -> None:
        model = self.world.models.get(job_id)
        if model is None:
            with pytest.raises(JobNotFoundError):
                self.world.client.job_delete(job_id)
        elif model.state is RUNNING:
            with pytest.raises(JobRunningError):
                self.world.client.job_delete(job_id)
        else:
            assert self.world.client.job_delete(job_id).state is model.state
            del self.world.models[job_id]

    @rule(states=st.sets(STATES, min_size=1, max_size=3))
    def delete_many(self, states: set[JobState]) -> None:
        deleted = [job.id for job in self.world.client.job_delete_many(states=sorted(states))]
        gone = [job_id for job_id, model in self.world.models.items() if model.state in states - {RUNNING}]
        assert deleted == sorted(gone)
        for job_id in gone:
            del self.world.models[job_id]

    @precondition(lambda self: self.world.models)
    @rule()
    def time_passes(self) -> None:
        """Everything falls due, and the scheduler makes it available."""
        self.world.table.execute(
            "UPDATE {job} SET scheduled_at = now() - interval '1 minute' WHERE state IN ('retryable', 'scheduled')"
        )
        horizon = timedelta(seconds=5)
        self.world.run(maintain.schedule(self.world.sql, horizon=horizon, limit=1000))
        due = self.world.run(maintain.due_unique(self.world.sql, horizon=horizon, limit=1000))
        discarded = self.world.run(maintain.schedule_unique(self.world.sql, due))
        waiting = {
            job_id: model for job_id, model in self.world.models.items() if model.state in (RETRYABLE, SCHEDULED)
        }
        for job_id, model in waiting.items():
            model.state = DISCARDED if job_id in discarded else AVAILABLE
        assert set(discarded) <= set(waiting)
        for key in {model.key for model in waiting.values()} - {None}:
            # Nobody is discarded for nothing: somebody has the key.
            assert self.world.holder(key) is not None

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        rows = self.world.table.rows()
        models = self.world.models
        found = {row["id"]: (row["state"], row["attempt"], row["max_attempts"]) for row in rows}
        wanted = {job_id: (str(model.state), model.attempt, model.max_attempts) for job_id, model in models.items()}
        assert found == wanted
        for row in rows:
            assert (row["finalized_at"] is not None) is JobState(row["state"]).finalized
            assert ("cancel_attempted_at" in row["metadata"]) is models[row["id"]].cancel_asked

    @invariant()
    def no_two_jobs_hold_one_key(self) -> None:
        keys = [model.key for model in self.world.models.values() if model.holds]
        assert len(keys) == len(set(keys))

    def holds_claim(self, job_id: int, attempted_at: str) -> bool:
        """Whether this claim is the one that runs."""
        if job_id not in self.world.models or self.world.models[job_id].state is not RUNNING:
            return False
        return bool(self.world.table.row(job_id)["attempted_at"] == datetime.fromisoformat(attempted_at))


class Withdrawn(Exception):  # noqa: N818 - no error
    """Rolls a transaction back."""


@pytest.fixture(params=["psycopg", "sqlalchemy-pg8000"])
def world(request: pytest.FixtureRequest, database_url: str, schema: str) -> Iterator[World]:
    with jobs_of(database_url, schema) as table:
        if request.param == "psycopg":
            with ConnectionPool(database_url, min_size=1, max_size=2) as pool:
                yield world_of(Client(pool, schema=schema), table)
        else:
            engine = create_engine(with_driver(database_url, "postgresql+pg8000"))
            yield world_of(Client(engine, schema=schema), table)
            engine.dispose()


def world_of(client: Client, table: Jobs) -> World:
    driver = client.driver
    assert not is_asyncio(driver)
    return World(client, driver, table)


@pytest.mark.slow
def test_every_job_is_always_in_the_state_that_rivers_rules_say(world: World) -> None:
    class Machine(StateGraph):
        def __init__(self) -> None:
            super().__init__(world)

    steps = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Machine, settings=steps)
