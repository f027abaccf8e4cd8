"""A shop that inserts jobs in the style of the official client, blocking: with an engine, a connection, a session.

It prints what each call gave it, a line of JSON each.
"""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from river import riverqueue
from river.riverqueue.driver import riversqlalchemy


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@dataclass
class ConfirmArgs:
    order_id: int
    customer: str

    kind: str = "confirm_order"

    def to_json(self) -> str:
        return json.dumps({"order_id": self.order_id, "customer": self.customer})


@dataclass
class ReportArgs:
    month: int

    kind: str = "report"

    def to_json(self) -> str:
        return json.dumps({"month": self.month})

    def insert_opts(self) -> riverqueue.InsertOpts:
        return riverqueue.InsertOpts(max_attempts=3, priority=4, queue="reports", tags=["monthly"])


def show(result: riverqueue.InsertResult) -> None:
    job = result.job
    print(
        json.dumps(
            {
                "args": job.args,
                "attempt": job.attempt,
                "attempted_at": job.attempted_at,
                "attempted_by": job.attempted_by,
                "errors": job.errors,
                "finalized_at": job.finalized_at,
                "kind": job.kind,
                "max_attempts": job.max_attempts,
                "metadata": job.metadata,
                "priority": job.priority,
                "queue": job.queue,
                "state": job.state,
                "tags": job.tags,
                "unique_key": job.unique_key,
                "skipped": result.unique_skipped_as_duplicated,
                "aware": job.created_at.tzinfo is UTC and job.scheduled_at.tzinfo is UTC,
            }
        )
    )


engine = sa.create_engine(os.environ["DATABASE_URL"])
client = riverqueue.Client(riversqlalchemy.Driver(engine))
Base.metadata.create_all(engine)

# Committed by itself.
show(client.insert(ReportArgs(1)))
show(client.insert(ReportArgs(2), insert_opts=riverqueue.InsertOpts(priority=2, tags=["yearly", "big_one"])))
at = datetime(2040, 2, 29, 12, 30, 15, 250000, tzinfo=UTC)
show(client.insert(ConfirmArgs(0, "Ünïcode ☕"), riverqueue.InsertOpts(scheduled_at=at)))
show(client.insert(ConfirmArgs(0, "past"), riverqueue.InsertOpts(scheduled_at=datetime.fromisoformat("2001-01-01"))))
show(client.insert(ReportArgs(3), riverqueue.InsertOpts(max_attempts=0, priority=0, queue="", tags=[])))

# With the order, or not at all.
with Session(engine) as session, session.begin():
    session.add(order := Order(customer="a"))
    session.flush()
    show(client.insert_tx(session, ConfirmArgs(order.id, order.customer)))
with Session(engine) as session:
    session.add(order := Order(customer="nobody"))
    session.flush()
    client.insert_tx(session, ConfirmArgs(order.id, order.customer))
    session.rollback()
with engine.begin() as connection:
    show(client.insert_tx(connection, ConfirmArgs(7, "connection"), insert_opts=riverqueue.InsertOpts(queue="mail")))

# Many at once.
print(client.insert_many([ReportArgs(4), riverqueue.InsertManyParams(args=ReportArgs(5))]))
many: list[riverqueue.JobArgs | riverqueue.InsertManyParams] = [
    riverqueue.InsertManyParams(
        ConfirmArgs(each, "many"), riverqueue.InsertOpts(queue=f"q{each}", priority=each % 4 + 1)
    )
    for each in range(20)
]
with engine.begin() as connection:
    print(client.insert_many_tx(connection, many))
with Session(engine) as session:
    print(client.insert_many_tx(session, many))
    session.rollback()
print(client.insert_many([]))

# A client of one connection.
with engine.connect() as connection:
    of_connection = riverqueue.Client(riversqlalchemy.Driver(connection))
    of_connection.insert(ConfirmArgs(8, "rolled back"))
    connection.rollback()
    show(of_connection.insert(ConfirmArgs(9, "committed")))
    print(of_connection.insert_many([ConfirmArgs(10, "committed")]))
    connection.commit()

with Session(engine) as session:
    print(sorted(session.scalars(sa.select(Order.customer))))
engine.dispose()
