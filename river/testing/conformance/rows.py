"""River's tables in a test: rows are set up and looked at with SQL of the suite's own, through the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from ...args import JobArgs
from ...insert import InsertParams
from ...job import JobState
from ...operation import Operation, Query
from ...sql import Dialect, dialect_for
from .playing import Playable
from .stage import Stage, question, whole

T = TypeVar("T")

CLIENT: Final = "test-client-id"
STATES = [state.value for state in JobState]
FINAL = ("cancelled", "completed", "discarded")
LIVING = tuple(state for state in STATES if state not in FINAL)
ALL_STATES: Final = 0xFF
"""A unique key that holds in every state."""

_TABLES = ("river_job", "river_queue")


class Table(Playable):
    """River's tables in the schema of a stage.

    Attributes:
        stage: Whose.
        sql: River's statements for them.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.player)
        self.stage = stage
        self.sql: Dialect = dialect_for(stage.driver.database, stage.schema)

    async def empty(self) -> None:
        """Delete all rows."""
        async with self.stage.transaction() as session:
            # A test that has left a transaction open must show, not hang the next ones.
            await session.ask("SELECT set_config('lock_timeout', '10s', true)")
            for table in _TABLES:
                await session.ask(f"DELETE FROM {self.stage.at(table)}")

    async def run(self, operation: Operation[T] | Query[T]) -> T:
        """Run an operation on a connection for itself, as a client does."""
        return await self.stage.run(operation)

    async def now(self) -> datetime:
        """The server's time."""
        text = await self.stage.value("SELECT CAST(to_json(clock_timestamp()) AS text)")
        return instant(json.loads(str(text)))

    async def add(self, **columns: Any) -> int:
        """Write a job as it is; what is left out has the value of a new job's, or the column's default. Its id."""
        state = columns.get("state", "available")
        row: dict[str, Any] = {"kind": "note", "args": {}, "max_attempts": 25, "state": state}
        if state in FINAL:
            row["finalized_at"] = "now"
        if state == "running":
            row |= {"attempt": 1, "attempted_at": "now", "attempted_by": [CLIENT]}
        rows = await self.stage.run(self._insertion("river_job", row | columns, "id"))
        return whole(rows[0][0])

    async def add_queue(self, name: str, **columns: Any) -> None:
        """Write a queue as it is."""
        row: dict[str, Any] = {"name": name, "metadata": {}, "created_at": "now", "updated_at": "now"}
        await self.stage.run(self._insertion("river_queue", row | columns, "name"))

    async def job(self, job_id: int) -> dict[str, Any]:
        """A job's row, as JSON has it."""
        (row,) = [row for row in await self.jobs() if row["id"] == job_id]
        return row

    async def jobs(self) -> list[dict[str, Any]]:
        """All jobs' rows, by id."""
        return await self._rows("river_job", "id")

    async def states(self) -> dict[int, str]:
        """The states of all jobs, by id."""
        return {row["id"]: row["state"] for row in await self.jobs()}

    async def queues(self) -> dict[str, dict[str, Any]]:
        """All queues' rows, by name."""
        return {row["name"]: row for row in await self._rows("river_queue", "name")}

    async def _rows(self, table: str, key: str) -> list[dict[str, Any]]:
        sql = f"SELECT CAST(row_to_json(r) AS text) FROM {self.stage.at(table)} AS r ORDER BY {key}"
        return [json.loads(str(row[0])) for row in await self.stage.ask(sql)]

    def _insertion(self, table: str, columns: Mapping[str, Any], key: str) -> Query[Any]:
        names = ", ".join(columns)
        where = self.stage.at(table)
        sql = f"""
            INSERT INTO {where} ({names})
            SELECT {names} FROM json_populate_record(CAST(NULL AS {where}), CAST(CAST(:row AS text) AS json))
            RETURNING {key}
        """
        return question(sql, row=json.dumps(columns, default=_as_json))


def new_job(**fields: Any) -> InsertParams:
    """A job that is to be inserted; what is left out is as a client leaves it."""
    args = fields.pop("args", {})
    kind = fields.pop("kind", "note")
    params: dict[str, Any] = {"queue": "default", "priority": 1, "max_attempts": 25} | fields
    encoded = json.dumps(args, ensure_ascii=False, separators=(",", ":"))
    return InsertParams(args=JobArgs(kind, args), kind=kind, encoded_args=encoded, **params)


def instant(text: str | None) -> datetime:
    """A time of a row's."""
    assert text is not None, "the column is NULL"
    return datetime.fromisoformat(text)


def key_text(key: bytes) -> str:
    """A unique key as a row has it, in JSON."""
    return f"\\x{key.hex()}"


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that have changed, with their new values."""
    return {name: value for name, value in after.items() if before[name] != value}


def in_order(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """One column of rows, in their order."""
    return [row[name] for row in rows]


def _as_json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} does not go into a row")
