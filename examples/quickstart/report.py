"""What happened, counted by SQL. Reads what the service printed; exits with 1 if anything is not as it must be."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import Session

from examples.quickstart.models import Order, Shipment, sessions
from examples.quickstart.service import Summary
from examples.quickstart.worker import CARRIER_BUSY_EVERY
from river_sqlalchemy import river_job  # River's table, for queries like these; only River writes it


@dataclass(frozen=True)
class Check:
    """A claim: so many there must be, so many there are."""

    claim: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        """Whether it is true."""
        return self.expected == self.found


def checks(session: Session, summary: Summary) -> list[Check]:
    """Every claim, and what the database says of it."""

    def rows(source: sa.FromClause | type[Order], *conditions: sa.ColumnElement[bool]) -> int:
        return session.scalars(sa.select(sa.func.count()).select_from(source).where(*conditions)).one()

    committed = summary.committed
    shipments = (
        sa.select(Order.id, sa.func.count(Shipment.id).label("count"))
        .outerjoin(Shipment, Shipment.order_id == Order.id)
        .group_by(Order.id)
        .subquery()
    )
    shipped_late = sa.select(Shipment.order_id).where(Shipment.attempt == 2)
    job_id, state = river_job.c.id, river_job.c.state
    return [
        Check("orders committed", committed, rows(Order)),
        Check("jobs", committed, rows(river_job)),
        Check("jobs completed", committed, rows(river_job, state == "completed")),
        Check("orders shipped exactly once", committed, rows(shipments, shipments.c.count == 1)),
        Check("orders shipped twice, or never", 0, rows(shipments, shipments.c.count != 1)),
        Check(
            "orders shipped at the second attempt",
            rows(Order, Order.id % CARRIER_BUSY_EVERY == 0),
            rows(Order, Order.id.in_(shipped_late)),
        ),
        Check(
            f"jobs out of {len(summary.rolled_back_jobs)} transactions rolled back",
            0,
            rows(river_job, job_id.in_(summary.rolled_back_jobs)),
        ),
        Check(
            "shipments of orders rolled back",
            0,
            session.query(Shipment).where(Shipment.order_id.in_(summary.rolled_back_orders)).count(),
        ),
    ]


def table(results: list[Check]) -> Table:
    """The checks, for a terminal."""
    shown = Table(title="What the database says", title_justify="left")
    shown.add_column("claim")
    shown.add_column("expected", justify="right")
    shown.add_column("found", justify="right")
    shown.add_column("verdict")
    for check in results:
        verdict = "[green]ok[/]" if check.holds else "[red]WRONG[/]"
        shown.add_row(check.claim, str(check.expected), str(check.found), verdict)
    return shown


def verdict(results: list[Check]) -> str:
    """All of it in one line."""
    wrong = sum(not check.holds for check in results)
    return f"[red]{wrong} of {len(results)} checks do not hold.[/]" if wrong else f"All {len(results)} checks hold."


def main() -> int:
    """Print the report; 0 if every claim holds."""
    summary = Summary(**json.load(sys.stdin))
    with sessions() as session:
        results = checks(session, summary)
    console = Console()
    console.print(table(results))
    console.print(verdict(results))
    return 0 if all(check.holds for check in results) else 1


if __name__ == "__main__":
    sys.exit(main())
