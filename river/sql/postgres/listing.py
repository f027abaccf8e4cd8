"""Lists of jobs, and the deletion of many: statements that are made of the filters that are set.

- A filter is one parameter, whatever number of values it has: the literal of an array, cast where it stands. Only
  states are part of the text: there are few, and how many jobs are in which differs by orders of magnitude, so that no
  one plan fits all. For the same reason nothing here is kept prepared.
- One value is compared with ``=``: an index is then also in the order of its next column, as the one on state and
  finalized_at is for a list of the jobs that ended in one way.
- Rows are sorted and cut first, and only then made JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...job import JobRow, JobState
from ...listing import FoundJobs, JobDeletion, JobFilters, JobListing
from ...listing.values import array
from ...operation import Query, Statement, Value
from .. import decode
from .base import Statements

_LIST = """\
SELECT CAST(row_to_json(job) AS text)
FROM (
    SELECT *
    FROM {schema}river_job AS job
    WHERE {conditions}
    ORDER BY {order}
    LIMIT CAST(:first AS bigint)
) AS job
ORDER BY {order}
"""

_DELETE_MANY = """\
WITH deleted AS (
    DELETE FROM {schema}river_job AS job
    WHERE id = ANY(ARRAY(
        SELECT id
        FROM {schema}river_job AS job
        WHERE {conditions}
        ORDER BY id
        LIMIT CAST(:first AS bigint)
        -- SKIP LOCKED: what somebody is about to change, or has claimed and not committed, is not waited for.
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job.*
)
SELECT CAST(row_to_json(deleted) AS text)
FROM deleted
ORDER BY id
"""


@dataclass(slots=True)
class _Conditions:
    """Conditions that all must hold, and the values of their parameters."""

    schema: str
    texts: list[str] = field(default_factory=list[str])
    parameters: dict[str, Value] = field(default_factory=dict[str, Value])

    def add(self, text: str, **parameters: Value) -> None:
        self.texts.append(text)
        self.parameters |= parameters

    def one_of(self, name: str, column: str, sql_type: str, values: Sequence[object] | None) -> None:
        """The column has one of the values, if there is such a filter."""
        if values is None:
            return
        texts = [str(value) for value in values]
        if len(texts) == 1:
            self.add(f"{column} = CAST(CAST(:{name} AS text) AS {sql_type})", **{name: texts[0]})
        else:
            self.add(f"{column} = ANY(CAST(CAST(:{name} AS text) AS {sql_type}[]))", **{name: array(texts)})

    def states(self, states: Sequence[JobState]) -> None:
        """The job is in one of *states*."""
        labels = [f"'{state.value}'" for state in states]
        if len(labels) == 1:
            self.add(f"state = {labels[0]}")
        else:
            self.add(f"state = ANY(CAST(ARRAY[{', '.join(labels)}] AS {self.schema}river_job_state[]))")

    def filter(self, filters: JobFilters) -> None:
        """The filters that are set."""
        self.one_of("ids", "id", "bigint", filters.ids)
        self.one_of("kinds", "kind", "text", filters.kinds)
        self.one_of("priorities", "priority", "smallint", filters.priorities)
        self.one_of("queues", "queue", "text", filters.queues)
        if filters.states is not None:
            self.states(filters.states)
        for name, operator, tags in (("tags_all", "@>", filters.tags_all), ("tags_any", "&&", filters.tags_any)):
            if tags is not None:
                self.add(f"tags {operator} CAST(CAST(:{name} AS text) AS varchar[])", **{name: array(tags)})
        if filters.metadata is not None:
            self.add("metadata @> CAST(CAST(:metadata AS text) AS jsonb)", metadata=filters.metadata)
        if filters.where is not None:
            self.add(f"({filters.where.sql})", **filters.where.parameters)

    def begin(self, listing: JobListing) -> None:
        """Only what comes after the end of the page before."""
        column = listing.column
        if column == "finalized_at" and not listing.nullable:
            self.add("finalized_at IS NOT NULL")  # says so to the planner: the index on it holds no others
        if listing.after is None:
            return
        beyond, time = "<" if listing.descending else ">", listing.after_time
        after_id = "CAST(:after_id AS bigint)"
        if column == "id":
            self.add(f"id {beyond} {after_id}", after_id=listing.after.id)
        elif time is not None:
            text = f"({column}, id) {beyond} (CAST(CAST(:after_time AS text) AS timestamptz), {after_id})"
            if listing.nullable and not listing.descending:
                text = f"({text} OR {column} IS NULL)"  # which come last
            self.add(text, after_id=listing.after.id, after_time=time)
        else:
            text = f"{column} IS NULL AND id {beyond} {after_id}"
            self.add(f"({text} OR {column} IS NOT NULL)" if listing.descending else text, after_id=listing.after.id)

    def __str__(self) -> str:
        return "\n        AND ".join(self.texts) or "true"


class ListStatements(Statements):
    """Lists of jobs, and the deletion of many."""

    def job_list(self, listing: JobListing) -> Query[FoundJobs]:
        """One page of a list."""
        conditions = _Conditions(self._names["schema"])
        conditions.filter(listing.filters)
        conditions.begin(listing)
        direction = " DESC" if listing.descending else ""
        columns = ("id",) if listing.column == "id" else (listing.column, "id")
        order = ", ".join(f"{column}{direction}" for column in columns)
        text = _LIST.format(conditions=conditions, order=order, **self._names)
        parameters = {**conditions.parameters, "first": listing.first}
        statement = Statement(text, parameters, prepared=False)
        return Query(statement, lambda rows: decode.listed(rows, listing.column))

    def job_delete_many(self, deletion: JobDeletion) -> Query[list[JobRow]]:
        """Delete the jobs that are wanted, but for those that run or are locked; as they were, by id."""
        conditions = _Conditions(self._names["schema"])
        conditions.filter(deletion.filters)
        conditions.add("state <> 'running'")
        text = _DELETE_MANY.format(conditions=conditions, **self._names)
        parameters = {**conditions.parameters, "first": deletion.first}
        return Query(Statement(text, parameters, prepared=False), decode.salvaged)
