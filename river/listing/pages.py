"""Pages of a list: the jobs, where the page ends, and the way on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UndecodableJobError
from ..job import JobRow
from .cursor import JobListCursor
from .filters import JobListing


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The jobs of a page as they were read.

    Attributes:
        jobs: In the order of the list.
        undecodable: Which of them cannot be read as a whole: by id, the column that is at fault, and why.
        odd_end: The last one's time in that order as the database writes it, if it is one that cannot be read.
    """

    jobs: Sequence[JobRow]
    undecodable: Mapping[int, str]
    odd_end: str | None = None


class _Page:
    """What the pages of both colours share."""

    def __init__(self, found: FoundJobs, listing: JobListing) -> None:
        self._found = found
        self._listing = listing

    @property
    def jobs(self) -> Sequence[JobRow]:
        """The jobs of this page, in the order of the list."""
        return self._found.jobs

    @property
    def undecodable(self) -> Mapping[int, str]:
        """Which of the jobs cannot be read as a whole: by id, the column that is at fault, and why.

        Such a job has neutral values in the place of those that cannot be read.
        """
        return self._found.undecodable

    @property
    def cursor(self) -> JobListCursor | None:
        """Where this page ends: ``after`` for the next one; None if the page is empty.

        Raises:
            UndecodableJobError: The last job's time in this order, ``infinity`` say, is one that no cursor can hold.
                `all` goes on after it all the same; a page with another ``first`` may end elsewhere.
        """
        if not self.jobs:
            return None
        last = self.jobs[-1]
        if self._found.odd_end is not None:
            raise UndecodableJobError(
                last.id,
                f"{self.undecodable[last.id]}: no cursor can hold the {self._listing.column} {self._found.odd_end!r}, "
                "with which this page ends; go on with all(), or ask for a page with another first",
            )
        return self._listing.cursor_of(last)

    def __iter__(self) -> Iterator[JobRow]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} jobs by {self._listing.order_by}>"

    def _following(self) -> JobListing | None:
        """The next page; None if this one has fewer jobs than were asked for, so that nothing follows."""
        if len(self) < self._listing.first:
            return None
        return self._listing.following(self.jobs[-1], self._found.odd_end)


class JobListPage(_Page):
    """A page of a list of jobs. Iterating it gives its jobs, and `all` those of the pages that follow, too."""

    def __init__(self, found: FoundJobs, listing: JobListing, fetch: Callable[[JobListing], JobListPage]) -> None:
        super().__init__(found, listing)
        self._fetch = fetch

    def all(self) -> Iterator[JobRow]:
        """The jobs of this page and of all that follow, each page fetched when the one before is used up.

        What changes meanwhile is seen as it is then: ordered by id no job comes twice, but by a time one may whose time
        has changed. A job whose time cannot be read, ``infinity`` say, is given where PostgreSQL puts it.

        Raises:
            DatabaseError: The database failed; the jobs before were given.
        """
        page = self
        while True:
            yield from page.jobs
            following = page._following()
            if following is None:
                return
            page = page._fetch(following)


class AsyncJobListPage(_Page):
    """A page of a list of jobs. Iterating it gives its jobs, and `all` those of the pages that follow, too."""

    def __init__(
        self, found: FoundJobs, listing: JobListing, fetch: Callable[[JobListing], Awaitable[AsyncJobListPage]]
    ) -> None:
        super().__init__(found, listing)
        self._fetch = fetch

    async def all(self) -> AsyncIterator[JobRow]:
        """The jobs of this page and of all that follow, each page fetched when the one before is used up.

        What changes meanwhile is seen as it is then: ordered by id no job comes twice, but by a time one may whose time
        has changed. A job whose time cannot be read, ``infinity`` say, is given where PostgreSQL puts it.

        Raises:
            DatabaseError: The database failed; the jobs before were given.
        """
        page = self
        while True:
            for job in page.jobs:
                yield job
            following = page._following()
            if following is None:
                return
            page = await page._fetch(following)
