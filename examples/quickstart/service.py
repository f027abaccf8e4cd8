"""The service: takes orders. An order and the job that ships it are inserted in one transaction.

It prints what it did as JSON, which report.py compares with the database.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

import river
from examples.quickstart.models import Order, ShipOrder, sessions

ORDERS = 600
PAYMENT_FAILS_EVERY = 6

# It only inserts, and only in transactions of ours, so it needs no database of its own.
client = river.Client(None)


class PaymentDeclinedError(Exception):
    """The customer cannot pay, so there must be no order."""


@dataclass
class Summary:
    """What became of the orders."""

    committed: int = 0
    rolled_back_orders: list[int] = field(default_factory=list[int])
    rolled_back_jobs: list[int] = field(default_factory=list[int])


def take_order(number: int, summary: Summary) -> None:
    """Insert one order and its job: both, or neither."""
    try:
        with sessions.begin() as session:
            order = Order(customer=f"customer {number}")
            session.add(order)
            session.flush()  # gives the order its id
            inserted = client.insert_tx(session, ShipOrder(order.id))
            if number % PAYMENT_FAILS_EVERY == 0:
                # The worst moment: both are written already. The exception rolls both back.
                summary.rolled_back_orders.append(order.id)
                summary.rolled_back_jobs.append(inserted.job.id)
                raise PaymentDeclinedError
    except PaymentDeclinedError:
        return
    summary.committed += 1


def main() -> None:
    """Take all orders, and say what became of them."""
    summary = Summary()
    for number in range(1, ORDERS + 1):
        take_order(number, summary)
    print(json.dumps(asdict(summary)))


if __name__ == "__main__":
    main()
