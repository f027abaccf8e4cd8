"""Unique jobs: which jobs count as the same, and for how long.

key.py        UniqueOpts, and the 32 bytes that River hashes of a job
text.py       the text that is hashed, byte for byte as River's
marks.py      `Unique`, and the paths of marked fields
fields.py     the fields of every kind of class, and their JSON names
go_order.py   in which order Go would write a value's members
"""

from __future__ import annotations

from .key import UniqueOpts, key_of_job, state_mask, unique_key
from .marks import Unique, unique_paths

__all__ = ["Unique", "UniqueOpts", "key_of_job", "state_mask", "unique_key", "unique_paths"]
