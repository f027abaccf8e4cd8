"""The two clients are one in all but the colour, and a method ending in ``_tx`` is its plain one with a handle."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from river import AsyncClient, Client
from river.base_client import BaseClient

ONLY_HERE = {"AsyncJobListPage": "JobListPage", "asyncio.Future": "Future"}
"""Types of the asyncio client, and what the other has in their place."""


def public(cls: type) -> dict[str, Any]:
    """What a class offers by name."""
    return {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}


def annotation(of: object) -> str:
    text = of if isinstance(of, str) else inspect.formatannotation(of)
    for asyncio_type, other in ONLY_HERE.items():
        text = re.sub(rf"\b{re.escape(asyncio_type)}\b", other, text)
    return text


def signature(function: Callable[..., Any], *, leave_out: int = 1) -> list[tuple[Any, ...]]:
    """A function's parameters but for the first, and what it returns."""
    described = inspect.signature(function)
    parameters = list(described.parameters.values())[leave_out:]
    return [
        *((each.name, each.kind, repr(each.default), annotation(each.annotation)) for each in parameters),
        ("->", annotation(described.return_annotation)),
    ]


def first_line(member: object) -> str:
    lines = (inspect.getdoc(member) or "").splitlines()
    return lines[0] if lines else ""


BLOCKING, ASYNCIO = public(Client), public(AsyncClient)
OWN = sorted(name for name in BLOCKING if name in vars(Client) or name in vars(AsyncClient))
TWINS = sorted(name for name in BLOCKING if name.endswith("_tx"))


def test_both_clients_offer_the_same() -> None:
    assert BLOCKING.keys() == ASYNCIO.keys()
    assert len(OWN) > 15
    assert len(TWINS) > 12


@pytest.mark.parametrize("name", OWN)
def test_the_clients_are_alike_line_for_line(name: str) -> None:
    blocking, asyncio = BLOCKING[name], ASYNCIO[name]
    assert type(blocking) is type(asyncio)
    assert first_line(blocking) == first_line(asyncio) != ""
    if isinstance(blocking, property):
        blocking, asyncio = blocking.fget, asyncio.fget
    else:
        assert inspect.iscoroutinefunction(asyncio)
        assert not inspect.iscoroutinefunction(blocking)
    assert signature(blocking) == signature(asyncio)


@pytest.mark.parametrize("name", TWINS)
def test_a_method_with_a_handle_takes_what_the_plain_one_takes(name: str) -> None:
    twin, plain = getattr(BaseClient, name), BLOCKING[name.removesuffix("_tx")]
    assert next(iter(list(inspect.signature(twin).parameters)[1:])) == "handle"
    *parameters, (_, returned) = signature(twin, leave_out=2)
    *expected, (_, plainly) = signature(plain)
    assert parameters == expected
    assert set(returned.split(" | ")) == {plainly, f"Coroutine[Any, Any, {plainly}]"}
    assert first_line(twin) != ""


def test_every_plain_method_of_jobs_and_queues_has_its_twin() -> None:
    managing = [name for name in BLOCKING if name.startswith(("insert", "job_", "queue_")) and not name.endswith("_tx")]
    assert {f"{name}_tx" for name in managing} == set(TWINS)
