"""A job worked at least once, and completed in its own transaction, has its effect exactly once.

The workers are processes, and SIGKILL is how they end: at random while they work, or at the worst moments of a
transaction. What they leave behind is rescued as a maintainer would.
"""

import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest
from psycopg.rows import namedtuple_row

import river
from river.driver import adopt
from river.job import JobRow
from river.operation import Executor, Operation, run
from river.operations import maintain
from river.sql import Dialect, dialect_for
from tests.conftest import run_script
from tests.support import transfers
from tests.support.transfers import DEATHS, LIBRARIES, Library, Transfer

ROOT = Path(__file__).parent.parent

TRANSFERS = 2_500
ACCOUNTS = 50
BALANCE = 1_000
KILLS = 12
DEADLINE_SECONDS = 60.0


class Crew:
    """Worker processes; those that still live are killed when the block is left.

    Args:
        log: Takes what they say.
    """

    def __init__(self, bank: "Bank", log: Path) -> None:
        self._bank = bank
        self._log = log
        self._living: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill(*self._living)

    def start(self, library: Library, *queues: str) -> str:
        """Start a process; the id of its client."""
        client_id = f"{library}_{uuid.uuid4().hex}"
        command = transfers.command(library, self._bank.url, self._bank.schema, client_id, *queues)
        with self._log.open("ab") as log:
            self._living[client_id] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        return client_id

    def kill(self, *client_ids: str) -> None:
        """Kill processes, and wait until they are dead and the server knows it."""
        for client_id in client_ids:
            self._living[client_id].kill()
        self.wait_for_deaths(*client_ids)

    def wait_for_deaths(self, *client_ids: str) -> None:
        """Wait until killed processes are dead, and the server has ended their transactions."""
        for client_id in client_ids:
            code = self._living[client_id].wait(DEADLINE_SECONDS)
            del self._living[client_id]
            assert code == -signal.SIGKILL, self._log.read_text()
        self._bank.wait_until_disconnected(*client_ids)

    def stop(self) -> None:
        """Ask all processes to stop, and wait until they have."""
        for process in self._living.values():
            process.terminate()
        while self._living:
            _, process = self._living.popitem()
            assert process.wait(DEADLINE_SECONDS) == 0, self._log.read_text()

    @property
    def living(self) -> list[str]:
        """The ids of the clients that were not killed."""
        return list(self._living)


class Bank:
    """What the database says: of accounts, ledger and jobs."""

    def __init__(self, connection: psycopg.Connection[Any], url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self._connection = connection

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Rows; the tables' schema is written as ``AT``."""
        with self._connection.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(query.replace("AT.", f"{self.schema}.").encode(), values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        """The only value of the only row."""
        ((value,),) = self.ask(query, *values)
        return value

    def do(self, operation: Callable[[Dialect], Operation[Any]]) -> Any:
        """Run an operation of River's in a transaction of its own."""
        with self._connection.transaction():
            executor = adopt(self._connection)
            assert isinstance(executor, Executor)
            return run(executor, operation(dialect_for("postgresql", self.schema)))

    def rescue_all(self) -> list[JobRow]:
        """Make every running job available again. Nobody may be working."""
        now = datetime.now(UTC)
        rescued = self.do(lambda sql: maintain.rescue(sql, older_than=timedelta(0), now=now, retry_at=lambda job: now))
        scheduled = self.do(lambda sql: maintain.schedule(sql, horizon=timedelta(0), limit=10_000))
        assert scheduled == len(rescued)
        return list(rescued)

    def wait_until(self, query: str, *values: Any) -> None:
        """Wait until the only value of a query is true."""
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while not self.one(query, *values):
            assert time.monotonic() < give_up_at, f"never true: {query}"
            time.sleep(0.005)

    def wait_until_disconnected(self, *client_ids: str) -> None:
        """Wait until the server has ended the connections of dead clients, and their transactions with them."""
        self.wait_until(
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = ANY(%s))", list(client_ids)
        )

    def wait_until_all_is_done(self) -> None:
        self.wait_until("SELECT NOT EXISTS (SELECT FROM AT.river_job WHERE finalized_at IS NULL)")

    def working(self) -> list[str]:
        """The ids of the clients that have a job running."""
        return [row.id for row in self.ask(f"SELECT DISTINCT {LAST_CLIENT} AS id FROM AT.river_job WHERE {RUNNING}")]

    def running_of(self, client_id: str) -> int:
        """How many jobs are running, or were left running, at a client."""
        count: int = self.one(f"SELECT count(*) FROM AT.river_job WHERE {RUNNING} AND {LAST_CLIENT} = %s", client_id)
        return count


RUNNING = "state = 'running'"
LAST_CLIENT = "attempted_by[array_length(attempted_by, 1)]"


@pytest.fixture
def bank(database_url: str, schema: str) -> Iterator[Bank]:
    """Accounts with money on them."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        run_script(connection, transfers.tables(schema, ACCOUNTS, BALANCE))
        yield Bank(connection, database_url, schema)


@pytest.fixture
def crew(bank: Bank, tmp_path: Path) -> Iterator[Crew]:
    with Crew(bank, tmp_path / "workers.log") as crew:
        yield crew


def insert(bank: Bank, jobs: list[river.InsertManyParams[Transfer]]) -> list[int]:
    """Insert jobs, and return their ids."""
    with psycopg.connect(bank.url) as connection:
        return [each.job.id for each in river.Client(None, schema=bank.schema).insert_many_tx(connection, jobs)]


def transfer(death: str | None = None) -> Transfer:
    source, target = random.sample(range(1, ACCOUNTS + 1), 2)
    return Transfer(source, target, random.randint(1, 100), death)


def check_the_books(bank: Bank, jobs: int) -> None:
    """Every job is completed, each has one line in the ledger, and the ledger explains every balance."""
    assert bank.ask("SELECT state, count(*) FROM AT.river_job GROUP BY state") == [("completed", jobs)]
    lines = bank.ask(
        """
        SELECT job.id, count(ledger.job_id)
        FROM AT.river_job AS job
        LEFT JOIN AT.ledger ON ledger.job_id = job.id
        GROUP BY job.id
        HAVING count(ledger.job_id) <> 1
        """
    )
    assert lines == [], "these jobs have no effect, or several"
    assert bank.one("SELECT count(*) FROM AT.ledger") == jobs
    different = bank.ask(
        """
        SELECT job.id
        FROM AT.river_job AS job
        JOIN AT.ledger ON ledger.job_id = job.id
        WHERE ledger.attempt <> job.attempt
            OR job.args - 'death' <> jsonb_build_object(
                'source', ledger.source, 'target', ledger.target, 'amount', ledger.amount
            )
        """
    )
    assert different == [], "the effect of these jobs is not that of their last attempt"
    assert bank.one("SELECT sum(balance) FROM AT.account") == ACCOUNTS * BALANCE
    unexplained = bank.ask(
        """
        SELECT id, balance
        FROM AT.account
        WHERE balance <> %s
            + (SELECT coalesce(sum(amount), 0) FROM AT.ledger WHERE target = id)
            - (SELECT coalesce(sum(amount), 0) FROM AT.ledger WHERE source = id)
        """,
        BALANCE,
    )
    assert unexplained == []


@pytest.mark.slow
def test_every_transfer_happens_exactly_once_while_workers_are_killed_at_random(bank: Bank, crew: Crew) -> None:
    insert(bank, [river.InsertManyParams(transfer()) for _ in range(TRANSFERS)])
    for library in LIBRARIES * 2:
        crew.start(library, "default")
    killed_at_work = 0
    for done in sorted(random.sample(range(1, TRANSFERS * 2 // 3), KILLS)):
        bank.wait_until("SELECT count(*) >= %s FROM AT.ledger", done)
        victim = random.choice([client for client in crew.living if client in bank.working()] or crew.living)
        crew.kill(victim)
        killed_at_work += bank.running_of(victim) > 0
        crew.start(random.choice(LIBRARIES), "default")
    # All that are left, at once, as if somebody had pulled the plug.
    crew.kill(*crew.living)

    rescued = bank.rescue_all()
    assert bank.working() == []
    assert len(rescued) >= killed_at_work >= KILLS // 2, "the kills came too late to prove anything"

    for library in LIBRARIES:
        crew.start(library, "default")
    bank.wait_until_all_is_done()
    crew.stop()

    check_the_books(bank, TRANSFERS)
    failed = bank.ask("SELECT id, attempt, error ->> 'error' AS error FROM AT.river_job, unnest(errors) AS error")
    assert {row.error for row in failed} == {maintain.RESCUE_ERROR}
    assert {row.id for row in failed} == {job.id for job in rescued}
    assert {row.attempt for row in failed} == {2}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_worker_that_dies_in_its_transaction_leaves_all_or_nothing(bank: Bank, crew: Crew, library: Library) -> None:
    # A process dies with all that it works, so each death has a queue and a process of its own.
    queues = [death.replace(" ", "_") for death in DEATHS]
    jobs = insert(
        bank,
        [
            river.InsertManyParams(transfer(death), river.InsertOpts(queue=queue))
            for death, queue in zip(DEATHS, queues, strict=True)
        ],
    )
    crew.wait_for_deaths(*[crew.start(library, queue) for queue in queues])

    # Only the last one had committed: its job is completed, and nothing is there of the others.
    *lost, committed = jobs
    assert [row.job_id for row in bank.ask("SELECT job_id FROM AT.ledger")] == [committed]
    assert bank.ask("SELECT id, state FROM AT.river_job ORDER BY id") == [
        *((job, "running") for job in lost),
        (committed, "completed"),
    ]

    assert [job.id for job in bank.rescue_all()] == lost
    crew.start(library, *queues)
    bank.wait_until_all_is_done()
    crew.stop()

    check_the_books(bank, len(jobs))
    assert bank.ask("SELECT job_id, attempt FROM AT.ledger ORDER BY job_id") == [
        *((job, 2) for job in lost),
        (committed, 1),
    ]
