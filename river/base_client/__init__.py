"""What both clients are made of: configuration, and everything that runs in a transaction of the host's.

A handle decides the colour, not the client: with a blocking connection or session the methods ending in ``_tx``
return a value, with an asyncio one an awaitable of it.
"""

from __future__ import annotations

from .inserts import Inserts
from .manage import Manages


class BaseClient(Inserts, Manages):
    """A client as far as it needs no connection of its own; both colours are made of it."""


__all__ = ["BaseClient"]
