"""River's schema through the driver: made, removed, found, and named by its name."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

import pytest

from ...driver import is_asyncio
from ...errors import DatabaseError, ErrorClass
from ...migrator import AsyncMigrator, Migrator
from ...operations import insert, jobs, maintain, queues, work
from ...sql import dialect_for
from ...sql.migration import migrations
from .playing import claim, settled
from .rows import CLIENT, new_job
from .stage import Stage

ELSEWHERE: Any = dialect_for("postgresql", "no_such_schema")

OPERATIONS: dict[str, Any] = {
    "insert_many": lambda: insert.insert_many(ELSEWHERE, [new_job()]),
    "insert_many_fast": lambda: insert.insert_many_fast(ELSEWHERE, [new_job()]),
    "job_get": lambda: jobs.get(ELSEWHERE, 1),
    "job_delete": lambda: jobs.delete(ELSEWHERE, 1),
    "claim": lambda: work.claim(ELSEWHERE, "default", client_id=CLIENT, limit=1),
    "queue_get": lambda: queues.get(ELSEWHERE, "default"),
    "schedule": lambda: maintain.schedule(ELSEWHERE, horizon=timedelta(), limit=1),
}


class SchemaClaims:
    """Where River's tables are."""

    @claim
    async def test_rivers_tables_are_made_removed_and_made_again(self, stage: Stage) -> None:
        schema = f"River_Migrated_{secrets.token_hex(6)}"
        await stage.ask(f'CREATE SCHEMA "{schema}"')
        counting = "SELECT count(*) FROM pg_tables WHERE schemaname = CAST(:schema AS text)"
        versions = [migration.version for migration in migrations(stage.driver.database)]
        migrator: Any = (AsyncMigrator if is_asyncio(stage.driver) else Migrator)(stage.driver, schema=schema)
        for _ in range(2):
            assert [step.version for step in await settled(migrator.up())] == versions
            assert await settled(migrator.applied()) == versions
            assert await stage.value(counting, schema=schema) != 0
            assert [step.version for step in await settled(migrator.down(target_version=0))] == versions[::-1]
            assert await stage.value(counting, schema=schema) == 0
        await stage.ask(f'DROP SCHEMA "{schema}" CASCADE')

    @pytest.mark.parametrize("name", OPERATIONS)
    @claim
    async def test_a_schema_without_rivers_tables_is_an_undefined_table(self, stage: Stage, name: str) -> None:
        with pytest.raises(DatabaseError) as failed:
            await stage.run(OPERATIONS[name]())
        assert failed.value.error_class is ErrorClass.UNDEFINED_TABLE
        assert "no_such_schema.river_" in str(failed.value)
