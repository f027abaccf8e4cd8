"""How deeply JSON text is nested, found without recursion, which is what fails on text that is too deep.

How deep Python can read depends on how deep the reader's own stack is already. `DEEPEST` is far below that, so that
what was inserted at one place can be read at every other.
"""

from __future__ import annotations

import re

DEEPEST = 200
"""Levels of objects and arrays that a job's args and metadata may have."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def too_deep(text: str) -> bool:
    """Whether a JSON text has more than `DEEPEST` levels."""
    # Counting is quick; only a text with many brackets is worth the walk.
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    level = 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            level += 1
            if level > DEEPEST:
                return True
        elif token[0] in ("]", "}"):
            level -= 1
    return False


def pruned(text: str, levels: int, instead: str) -> str:
    """A JSON text without what is nested deeper than *levels*: in its place stands *instead*, a JSON value."""
    kept: list[str] = []
    level, start = 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            level += 1
            if level == levels + 1:
                kept += (text[start : token.start()], instead)
        elif token[0] in ("]", "}"):
            if level == levels + 1:
                start = token.end()
            level -= 1
    return "".join([*kept, text[start:]])
