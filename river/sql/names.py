"""The names of schemas: which ones River accepts, and how one stands in front of a table's name."""

from __future__ import annotations

import re

from ..errors import ConfigurationError

_SCHEMA = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)

# With a dot and the longest topic, river_leadership, it makes a channel name of PostgreSQL's 63 bytes.
_LONGEST = 46


def check_schema(value: object) -> None:
    """Refuse the name of a schema in which a River client, of whatever language, could not work.

    Raises:
        ConfigurationError: It is neither None nor such a name.
    """
    if value is None:
        return
    if not isinstance(value, str) or len(value) > _LONGEST or not _SCHEMA.fullmatch(value):
        raise ConfigurationError(
            f"schema must be 1 to {_LONGEST} ASCII letters, digits or '_' and not begin with a digit, unlike {value!r}"
        )


def qualifier(schema: str | None) -> str:
    """What stands in front of a name: the quoted schema and a dot; nothing for None."""
    if schema is None:
        return ""
    quoted = schema.replace('"', '""')
    return f'"{quoted}".'
