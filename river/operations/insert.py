"""Writing new jobs, and telling listeners of them; both happen when the transaction commits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..errors import InvalidJobError
from ..insert import InsertParams, encode_metadata
from ..job import InsertedRow
from ..operation import Operation
from ..sql import InsertStatements

ROWS = 10_000
"""So many jobs travel in one statement at most."""

TEXT = 16 * 1024 * 1024
"""And so many characters of their args and metadata: PostgreSQL would take a gigabyte, but has to hold it."""


def insert_many(
    sql: InsertStatements, jobs: Sequence[InsertParams], *, muted: Collection[str] = ()
) -> Operation[list[InsertedRow]]:
    """Insert jobs; for each, in their order, its row, or the one that was there already with the same unique key.

    Args:
        jobs: What to insert.
        muted: Queues whose listeners need not be told.

    Raises:
        InvalidJobError: Two of them have the same unique key; nothing was written.
    """
    _refuse_repeated(jobs)
    inserted: list[InsertedRow] = []
    for chunk in chunks(jobs):
        inserted += yield from sql.job_insert_many(chunk, muted=muted)
    return inserted


def insert_many_fast(
    sql: InsertStatements, jobs: Sequence[InsertParams], *, muted: Collection[str] = ()
) -> Operation[int]:
    """Insert jobs, but for those whose unique key is there already, and return only how many; otherwise as above."""
    _refuse_repeated(jobs)
    count = 0
    for chunk in chunks(jobs):
        count += yield from sql.job_insert_many_fast(chunk, muted=muted)
    return count


def chunks(jobs: Sequence[InsertParams]) -> Iterator[Sequence[InsertParams]]:
    """*jobs* in their order, in parts that one statement can take."""
    begin, text = 0, 0
    for index, job in enumerate(jobs):
        length = len(job.encoded_args) + (len(encode_metadata(job.metadata)) if job.metadata else 0)
        text += length
        if index > begin and (index - begin == ROWS or text > TEXT):
            yield jobs[begin:index]
            begin, text = index, length
    yield jobs[begin:]


def _refuse_repeated(jobs: Sequence[InsertParams]) -> None:
    """The database would refuse it too, but after the first write, and without a word on which jobs they are."""
    seen: dict[bytes, int] = {}
    for index, job in enumerate(jobs):
        if job.unique_key is not None:
            before = seen.setdefault(job.unique_key, index)
            if before != index:
                raise InvalidJobError(
                    f"jobs {before} and {index} of the batch (counted from 0; kind {job.kind!r}, args "
                    f"{job.encoded_args[:200]}) have the same unique key, so only one of them could be inserted: "
                    "leave one out"
                )


__all__ = ["chunks", "insert_many", "insert_many_fast"]
