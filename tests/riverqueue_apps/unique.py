"""Unique jobs in the style of the official client, by args, queue and period; the states are named, and all of River's.

The official client finds no such index as it asks for, on the schemas of today's River, where it is told no states.
"""

import json
import os
import threading
from dataclasses import dataclass

import sqlalchemy as sa

from river import riverqueue
from river.riverqueue.driver import riversqlalchemy

STATES = [
    riverqueue.JobState.AVAILABLE,
    riverqueue.JobState.PENDING,
    riverqueue.JobState.RUNNING,
    riverqueue.JobState.SCHEDULED,
]


@dataclass
class ReconcileArgs:
    account_id: int

    kind: str = "reconcile"

    def to_json(self) -> str:
        return json.dumps({"account_id": self.account_id})

    def insert_opts(self) -> riverqueue.InsertOpts:
        return riverqueue.InsertOpts(unique_opts=riverqueue.UniqueOpts(by_args=True, by_state=STATES))


@dataclass
class CleanArgs:
    kind: str = "clean"

    def to_json(self) -> str:
        return "{}"


def show(result: riverqueue.InsertResult) -> None:
    print(json.dumps([result.job.kind, result.job.args, result.job.queue, result.unique_skipped_as_duplicated]))


engine = sa.create_engine(os.environ["DATABASE_URL"])
client = riverqueue.Client(riversqlalchemy.Driver(engine), advisory_lock_prefix=77)

show(client.insert(ReconcileArgs(1)))
show(client.insert(ReconcileArgs(1)))
show(client.insert(ReconcileArgs(2)))

by_queue = riverqueue.UniqueOpts(by_queue=True, by_state=STATES)
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="one", unique_opts=by_queue)))
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="one", unique_opts=by_queue)))
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="two", unique_opts=by_queue)))

# A hundred years: no boundary between the two calls.
by_period = riverqueue.UniqueOpts(by_period=3_155_760_000, by_queue=True, by_state=STATES)
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="three", unique_opts=by_period)))
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="three", unique_opts=by_period)))

# Unique in a transaction: visible to itself, gone with it.
with engine.connect() as connection, connection.begin() as transaction:
    show(client.insert_tx(connection, ReconcileArgs(3)))
    show(client.insert_tx(connection, ReconcileArgs(3)))
    transaction.rollback()
with engine.begin() as connection:
    show(client.insert_tx(connection, ReconcileArgs(3)))

# Eight threads want the same job; one gets it.
skipped: list[bool] = []
threads = [
    threading.Thread(target=lambda: skipped.append(client.insert(ReconcileArgs(4)).unique_skipped_as_duplicated))
    for _ in range(8)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(sorted(skipped)))

# No options that make it unique: not unique.
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="four", unique_opts=riverqueue.UniqueOpts())))
show(client.insert(CleanArgs(), riverqueue.InsertOpts(queue="four", unique_opts=riverqueue.UniqueOpts())))

try:
    client.insert_many([ReconcileArgs(5)])
except ValueError:
    print("insert_many takes no unique jobs")
engine.dispose()
