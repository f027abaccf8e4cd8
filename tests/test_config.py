"""Each option of a client is checked where it is given, and an error names the option, its value and the rule."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import AsyncClient, Client, Config, ConfigurationError, DefaultRetryPolicy, Hook, QueueConfig, Workers
from river.config import ConfigOptions, default_id, seconds
from tests.test_operation import untimed

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def config(**options: Any) -> Config:
    given: Any = options
    return Config.of(given)


def working(**options: Any) -> Config:
    return config(workers=Workers(), **options)


def test_the_defaults_are_rivers() -> None:
    default = config()
    assert (default.queues, default.workers, default.schema) == ({}, None, None)
    assert (default.max_attempts, default.fetch_cooldown, default.fetch_poll_interval) == (25, 0.1, 1.0)
    assert (default.poll_only, default.skip_unknown_job_check) == (False, False)
    assert isinstance(default.retry_policy, DefaultRetryPolicy)
    assert (default.hooks, default.middleware) == ((), ())


def test_the_keywords_of_a_client_are_the_fields_of_the_configuration() -> None:
    assert set(ConfigOptions.__annotations__) == {field.name for field in fields(Config)}


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_has_its_configuration(make: Callable[..., Client | AsyncClient]) -> None:
    client = make(None, id="me", max_attempts=3)
    assert (client.id, client.config.max_attempts) == ("me", 3)
    with pytest.raises(ConfigurationError, match="max_attempts"):
        make(None, max_attempts=0)
    with pytest.raises(ConfigurationError, match="no option 'queue'; did you mean 'queues'"):
        make(None, queue={})


def test_a_configuration_is_frozen() -> None:
    frozen: Any = config()
    with pytest.raises(FrozenInstanceError):
        frozen.id = "other"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("max_attempt", "max_attempts"),
        ("worker", "workers"),
        ("que", "queues"),
        ("fetch_cool_down", "fetch_cooldown"),
        ("poll_interval", "fetch_poll_interval"),
        ("hook", "hooks"),
        ("middlewares", "middleware"),
        ("Schema", "schema"),
    ],
)
def test_an_unknown_option_suggests_the_near_one(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a client has no option '{name}'; did you mean '{near}'"):
        config(**{name: 1})


def test_an_unknown_option_that_is_near_to_none_lists_them_all() -> None:
    with pytest.raises(ConfigurationError, match="no option 'xyzzy'; the options are ") as raised:
        config(xyzzy=1)
    for field in fields(Config):
        assert field.name in str(raised.value)


class NoPolicy:
    pass


NOT_WHOLE: list[Any] = [0, -1, 32_768, "5", 5.0, True, None, float("nan")]
NO_DURATION: list[Any] = [
    0,
    -1,
    0.0001,
    "1",
    True,
    None,
    float("nan"),
    float("inf"),
    timedelta(0),
    timedelta(microseconds=999),
]
NO_ID: list[Any] = ["", "i" * 101, "é" * 51, "a\x00", 5, None, b"id"]
BAD_FLAGS: list[Any] = [1, "no", None]
NO_WORKERS: list[Any] = [{}, [], Workers]
BAD_SLOTS: list[Any] = [0, -1, 10_001, QueueConfig(max_workers=0), QueueConfig(max_workers=True)]
NO_SCHEMA: list[Any] = ["", "1a", "a-b", "a b", 'a"b', "a.b", "ä", "a\n", "a" * 47, 5, b"a"]

REFUSED: list[tuple[str, Any, str]] = [
    *[("max_attempts", value, "max_attempts must be a whole number from 1 to 32,767, not") for value in NOT_WHOLE],
    *[("fetch_cooldown", value, r"fetch_cooldown must be 0\.001 seconds or more") for value in NO_DURATION],
    *[("fetch_poll_interval", value, r"fetch_poll_interval must be 0\.001 seconds or more") for value in NO_DURATION],
    *[("id", value, "id must be a text of 1 to 100 bytes, not") for value in NO_ID],
    *[("schema", value, "schema must be 1 to 46 ASCII letters, digits or '_'") for value in NO_SCHEMA],
    *[("retry_policy", value, r"retry_policy must have next_retry\(job, now\)") for value in (NoPolicy(), 5, None)],
    *[("hooks", [value], r"hooks must be of the class river\.Hook") for value in (Hook, object(), None)],
    *[("middleware", [value], r"middleware must be of the class river\.Middleware") for value in (Hook(), None)],
    *[("workers", value, r"workers must be of the class river\.Workers") for value in NO_WORKERS],
    ("hooks", Hook(), r"hooks must be a list of river\.Hook"),
    ("middleware", 5, r"middleware must be a list of river\.Middleware"),
    *[("poll_only", value, "poll_only must be True or False, not") for value in BAD_FLAGS],
    *[("skip_unknown_job_check", value, "skip_unknown_job_check must be True or False") for value in BAD_FLAGS],
    *[("queues", value, "queues must be a mapping of names to numbers of workers") for value in (["a"], "a", 5, None)],
    ("queues", {"A": 1}, "queue 'A' is no queue name"),
    ("queues", {"": 1}, "queue '' is no queue name"),
    ("queues", {5: 1}, "queue 5 is no queue name"),
    ("queues", {"q" * 65: 1}, "is no queue name"),
    *[("queues", {"q": value}, "queue 'q' needs a number of workers or a QueueConfig") for value in ("5", 5.0, True)],
    *[
        ("queues", {"q": value}, "max_workers of queue 'q' must be a whole number from 1 to 10,000, not")
        for value in BAD_SLOTS
    ],
    *[
        ("queues", {"q": QueueConfig(max_workers=1, fetch_cooldown=value)}, "fetch_cooldown of queue 'q' must be")
        for value in (0, float("nan"), timedelta(0))
    ],
    *[
        ("queues", {"q": QueueConfig(max_workers=1, fetch_poll_interval=value)}, "fetch_poll_interval of queue 'q'")
        for value in (0, float("nan"), 0.05)
    ],
]


@pytest.mark.parametrize(("option", "value", "message"), REFUSED)
def test_an_invalid_option_is_refused_by_name_with_its_value_and_the_rule(
    option: str, value: Any, message: str
) -> None:
    options = {option: value} if option == "workers" else {"workers": Workers(), option: value}
    with pytest.raises(ConfigurationError, match=message) as raised:
        config(**options)
    shown = str(raised.value)
    inner = value[0] if isinstance(value, list) and option in ("hooks", "middleware") else value
    if option != "queues":
        assert repr(inner) in shown or f"{inner!r:.20}" in shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 1),
        ("max_attempts", 32_767),
        ("fetch_cooldown", 0.001),
        ("fetch_cooldown", 1),
        ("fetch_cooldown", timedelta(milliseconds=1)),
        ("fetch_poll_interval", timedelta.max),
        ("id", "i" * 100),
        ("id", "é" * 50),
        ("schema", "a" * 46),
        ("schema", "_"),
        ("schema", "Mixed_Case_1"),
        ("schema", None),
        ("workers", None),
        ("queues", {"q": 10_000}),
        ("queues", {"q" * 64: 1, "a|b": QueueConfig(max_workers=1)}),
        ("hooks", (Hook(),)),
        ("poll_only", True),
    ],
)
def test_a_value_at_the_edge_of_its_range_is_accepted(option: str, value: Any) -> None:
    options = {"workers": Workers()} | {option: value}
    assert getattr(config(**options), option) == value


def test_polls_must_not_be_more_frequent_than_the_cooldown_allows() -> None:
    with pytest.raises(ConfigurationError, match=r"fetch_poll_interval \(1 s\) must not be shorter than .* \(2 s\)"):
        config(fetch_cooldown=2)
    with pytest.raises(ConfigurationError, match=r"fetch_poll_interval of queue 'q' \(1 s\) must not be shorter"):
        working(queues={"q": QueueConfig(max_workers=1, fetch_cooldown=2)})
    assert config(fetch_cooldown=2, fetch_poll_interval=2).fetch_cooldown == 2


def test_queues_need_workers_and_workers_need_no_queues() -> None:
    with pytest.raises(ConfigurationError, match="queues are given, but no workers"):
        config(queues={"q": 1})
    assert working().queues == {}


def test_a_queue_takes_what_it_leaves_open_from_the_client() -> None:
    client = working(
        queues={"a": 5, "b": QueueConfig(max_workers=2, fetch_cooldown=3, fetch_poll_interval=timedelta(seconds=4))},
        fetch_cooldown=0.5,
        fetch_poll_interval=2,
    )
    assert client.queue("a") == QueueConfig(max_workers=5, fetch_cooldown=0.5, fetch_poll_interval=2)
    assert client.queue("b") == QueueConfig(max_workers=2, fetch_cooldown=3, fetch_poll_interval=timedelta(seconds=4))
    with pytest.raises(KeyError):
        client.queue("c")


def test_a_duration_is_seconds_or_a_timedelta() -> None:
    assert seconds("x", 2) == 2.0
    assert seconds("x", timedelta(minutes=1)) == 60.0
    with pytest.raises(ConfigurationError, match="x must be"):
        seconds("x", Fraction(1, 2))


def test_the_default_id_is_the_hosts_name_and_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "web-1.example.com")
    assert default_id(NOW) == "web-1_example_com_2026_01_02T03_04_05_678901"
    assert config().id.startswith("web-1_example_com_20")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@host/database",
        "postgres://host/database",
        "postgresql+psycopg://host/database",
        "postgresql+asyncpg://host/database",
        "postgresql+psycopg2://host/database",
        None,
    ],
)
def test_what_is_listened_through_is_a_url_of_a_library_that_can_listen(url: str | None) -> None:
    assert config(listen_url=url).listen_url == url


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "listen_url cannot be used: no driver can be made of a str that is no URL"),
        ("host=localhost", "listen_url cannot be used: no driver can be made of a str that is no URL"),
        ("mysql://user:secret@host/database", r"listen_url cannot be used: no driver can be made of mysql://\.\.\."),
        ("postgresql://user:sec@ret@host:5x/database", "listen_url cannot be used: the database URL cannot be read"),
        ("postgresql+pg8000://user:secret@host/database", "listen_url names a library that cannot wait"),
        ("sqlite://", "listen_url names a library that cannot wait"),
        (7, "listen_url must be a URL or None, not <class 'int'>"),
        (b"postgresql://host", "listen_url must be a URL or None, not <class 'bytes'>"),
    ],
)
def test_what_cannot_be_listened_through_is_refused_without_showing_its_password(url: Any, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule) as refused:
        config(listen_url=url)
    assert "secret" not in str(refused.value)
    assert "sec@ret" not in str(refused.value)


def test_a_client_that_does_without_listening_has_nothing_to_listen_through() -> None:
    with pytest.raises(ConfigurationError, match="poll_only=True does without listening: drop one of them"):
        config(listen_url="postgresql://host/database", poll_only=True)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("", "unknown_host"),
        ("h" * 200, "h" * 60),
        ("h" * 59 + "é", "h" * 59),
        ("é" * 100, "é" * 30),
        ("...", "___"),
    ],
)
def test_a_hosts_name_is_cut_to_sixty_bytes(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    monkeypatch.setattr(platform, "node", lambda: host)
    assert default_id(NOW) == f"{name}_2026_01_02T03_04_05_678901"
    assert config(id=default_id(NOW)).id == default_id(NOW)


def test_the_default_id_on_this_machine_has_rivers_form() -> None:
    assert re.fullmatch(r"[^.]+_\d{4}_\d\d_\d\dT\d\d_\d\d_\d\d_\d{6}", config().id)
    assert config().id != config().id


@untimed
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_the_rule_of_ids_is_a_hundred_bytes(text: str) -> None:
    if 1 <= len(text.encode()) <= 100:
        assert config(id=text).id == text
    else:
        with pytest.raises(ConfigurationError, match="1 to 100 bytes"):
            config(id=text)
