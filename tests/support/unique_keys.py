"""Unique keys of kind "k", as River makes them and as their text says that they must be."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from river.args import encode
from river.unique import UniqueOpts, key_of_job, unique_key

AT = datetime(2024, 9, 15, 10, 37, 23, 123456, tzinfo=UTC)
BY_ARGS = UniqueOpts(by_args=True)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def key_by_args(encoded: str, *paths: str) -> bytes:
    return unique_key(BY_ARGS, kind="k", encoded_args=encoded, paths=paths, queue="q", at=AT)


def key_of(args: Any, by_args: bool | list[str] = True) -> bytes:
    opts = UniqueOpts(by_args=by_args)
    encoded = encode(args, args.kind)
    return key_of_job(opts, type(args), kind="k", encoded_args=encoded, queue="q", at=AT)


def by_args(text: str) -> bytes:
    """The key of kind "k" whose part of the args is *text*."""
    return digest(f"&kind=k&args={text}")
