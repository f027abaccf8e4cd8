"""The suite that every driver of River's must pass, whoever wrote it. It needs pytest, and the driver.

::

    from river.testing import conformance

    class TestMyDriver(conformance.DriverSuite):          # or AsyncDriverSuite
        def driver(self, url): ...                        # a context manager of the driver

    class TestMyConnections(conformance.HandleSuite):     # or AsyncHandleSuite
        def driver(self, url): ...
        def host(self, url, *, autocommit): ...           # a context manager of a `Host`

Every claim is then a test by name. Its name says the claim; what a driver says that it cannot do is skipped, with the
reason. docs/drivers.md has the law of each method, and a list of what is checked.

The claims are written once, as coroutines over either colour (`playing`, `stage`), and grouped by what they are about:

    seam transactions failures listening    the driver itself
    adoption                                 a host's handle
    schemas inserts reads claiming ending    what River does through it: its operations, on its own tables
    managing deletes maintaining queues
    clients                                  a whole client
"""

import pytest

# Before the modules are imported: pytest shows what an assertion has compared only where it was told so.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "adoption",
            "claiming",
            "clients",
            "deletes",
            "ending",
            "failures",
            "inserts",
            "listening",
            "maintaining",
            "managing",
            "playing",
            "queues",
            "reads",
            "rows",
            "schemas",
            "seam",
            "stage",
            "transactions",
        )
    )
)

from .hosts import AsyncHost, Host  # noqa: E402
from .suites import AsyncDriverSuite, AsyncHandleSuite, DriverSuite, HandleSuite  # noqa: E402

__all__ = ["AsyncDriverSuite", "AsyncHandleSuite", "AsyncHost", "DriverSuite", "HandleSuite", "Host"]
