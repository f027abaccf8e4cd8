"""The worker process: ships orders until it is told to stop, by Ctrl-C or SIGTERM."""

from __future__ import annotations

import river
from examples.quickstart.models import Order, Shipment, ShipOrder, engine, sessions

CARRIER_BUSY_EVERY = 5

workers = river.Workers()


class CarrierBusyError(Exception):
    """Nobody can take the parcel now."""


# Any exception means that the job is tried again later. A `def` runs in a thread; an `async def` would be a task.
@workers.work()
def ship_order(job: river.Job[ShipOrder], ctx: river.WorkContext) -> None:
    """Ship one order, and complete its job in the same transaction."""
    with sessions.begin() as session:
        order = session.get_one(Order, job.args.order_id)
        session.add(Shipment(order_id=order.id, attempt=job.attempt))
        session.flush()
        if order.id % CARRIER_BUSY_EVERY == 0 and job.attempt == 1:
            # The shipment is written already; the exception takes it back.
            raise CarrierBusyError(f"no carrier for order {order.id}")
        # Committed together with the shipment, or not at all.
        ctx.complete_tx(session)


client = river.Client(engine, workers=workers, queues={"default": 10})

if __name__ == "__main__":
    client.run()
