"""What the service and the worker share: the database, its tables, and the job.

DATABASE_URL says where the database is. River's own tables are not declared here: River makes and reads them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

engine = sa.create_engine(sa.make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"))
sessions = sessionmaker(engine)


class Base(DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """What a customer asked for."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


class Shipment(Base):
    """What was sent. Nothing in this table keeps an order from being shipped twice: River must."""

    __tablename__ = "shipments"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(sa.ForeignKey(Order.id))
    attempt: Mapped[int]


@dataclass
class ShipOrder:
    """The args of a job: its kind, and what its worker needs to know. They are stored as JSON."""

    kind: ClassVar[str] = "ship_order"
    order_id: int
