# ruff: noqa: ARG002 - the methods are for overriding
"""Where a host's own code is called around insert and work.

    insert   middleware.insert( hook.insert_begin, then the write )
    work     hook.work_claimed, then middleware.work( hook.work_begin, decode, the worker, hook.work_end )

Hooks are called at a point; middleware wraps. Both run where the insert or the worker runs: in the caller's
thread, on the event loop, or in a worker's thread. They are never called inside a database operation, but those of
an insert do run inside its transaction, so that an error in them writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .errors import SwallowedError
from .insert import InsertParams, check_changed
from .job import JobRow

if TYPE_CHECKING:
    from .context import WorkContext


class Hook:
    """Called at points of a job's life; override what is needed."""

    def insert_begin(self, params: InsertParams) -> None:
        """A job is about to be inserted. *params* may be changed; an error withdraws the whole insert."""

    def work_claimed(self, job: JobRow) -> None:
        """A job was claimed and will start as soon as its turn comes. Runs on the event loop: do not block."""

    def work_begin(self, ctx: WorkContext) -> None:
        """An attempt begins; its args are not decoded yet. An error fails the attempt."""

    def work_end(self, ctx: WorkContext, error: Exception | None) -> Exception | None:
        """The worker returned, or raised *error*. The answer takes the error's place; None means success."""
        return error


class Middleware:
    """Wraps an insert or an attempt; override what is needed."""

    def insert(self, jobs: Sequence[InsertParams]) -> AbstractContextManager[Any]:
        """Wraps the insert of a batch: entered before its hooks, left after the write, before the commit."""
        return nullcontext()

    def work(self, ctx: WorkContext) -> AbstractContextManager[Any]:
        """Wraps an attempt: entered before its hooks, left with the worker's exception, if there is one.

        If it swallows that exception, the job is completed.
        """
        return nullcontext()


class Extensions:
    """The hooks and middleware of a client, in their order: the first is the outermost."""

    def __init__(self, hooks: Sequence[Hook] = (), middleware: Sequence[Middleware] = ()) -> None:
        self.hooks = tuple(hooks)
        self.middleware = tuple(middleware)

    def inserting(self, jobs: Sequence[InsertParams]) -> ExitStack:
        """Enter the middleware around the insert of *jobs*, call its hooks, and check what they changed."""
        with ExitStack() as stack:
            encoded = [job.encoded_args for job in jobs]
            for middleware in self.middleware:
                stack.enter_context(middleware.insert(jobs))
            if self.hooks or self.middleware:
                for job, text in zip(jobs, encoded, strict=True):
                    for hook in self.hooks:
                        hook.insert_begin(job)
                    check_changed(job, text, datetime.now(UTC))
            return stack.pop_all()
        raise SwallowedError("an insert")

    @property
    def runs_host_code_at_insert(self) -> bool:
        """Whether an insert can still fail after its statement, so that it needs a transaction around it."""
        return bool(self.middleware)

    def claimed(self, job: JobRow) -> None:
        """Tell the hooks that a job was claimed."""
        for hook in self.hooks:
            hook.work_claimed(job)

    def work_begin(self, ctx: WorkContext) -> None:
        """Tell the hooks that an attempt begins."""
        for hook in self.hooks:
            hook.work_begin(ctx)

    def work_end(self, ctx: WorkContext, error: Exception | None) -> Exception | None:
        """Ask the hooks what becomes of the worker's error."""
        for hook in self.hooks:
            error = hook.work_end(ctx, error)
        return error
