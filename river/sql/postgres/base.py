"""What the statements of every noun share: the names of their schema, and their texts, made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ...operation import Query, Rows, Statement, Value
from ..names import qualifier

T = TypeVar("T")


class Statements:
    """Statements for one schema of a PostgreSQL database.

    Args:
        schema: Where River's tables are; None leaves it to each session's search_path.
    """

    def __init__(self, schema: str | None) -> None:
        self._names = {
            "schema": qualifier(schema),
            "channel_prefix": "coalesce(current_schema(), '')" if schema is None else f"'{schema}'",
        }
        self._texts: dict[tuple[str, int], str] = {}

    def _query(
        self, template: str, parameters: Mapping[str, Value], read: Callable[[Rows], T], limit: int = 0
    ) -> Query[T]:
        """A query of a template in which ``{schema}``, ``{channel_prefix}`` and ``{limit}`` are replaced."""
        text = self._texts.get((template, limit))
        if text is None:
            text = self._texts[template, limit] = template.format(limit=limit, **self._names)
        return Query(Statement(text, parameters), read)
