"""Lists of jobs as values: what is asked for, where a page ends, and pages.

    options  ->  JobListing  ->  (one statement)  ->  FoundJobs  ->  a page, whose end is a JobListCursor

Nothing here does any I/O. All checks are made when a `JobListing` or a `JobDeletion` is, before any statement.
"""

from __future__ import annotations

from .cursor import JobListCursor, SortField, rfc3339
from .filters import JobDeleteOptions, JobDeletion, JobFilters, JobListing, JobListOptions
from .pages import AsyncJobListPage, FoundJobs, JobListPage
from .where import Where

__all__ = [
    "AsyncJobListPage",
    "FoundJobs",
    "JobDeleteOptions",
    "JobDeletion",
    "JobFilters",
    "JobListCursor",
    "JobListOptions",
    "JobListPage",
    "JobListing",
    "SortField",
    "Where",
    "rfc3339",
]
