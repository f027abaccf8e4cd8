"""The suite fails where it must: drivers that are wrong in one thing each, and the claims that say so.

Each wrong driver is a small change of one of ours. The last test asks that every claim about a driver or an adopter is
broken by one of them.
"""

from __future__ import annotations

import asyncio
import decimal
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from river.driver import AsyncDriver, Driver, Notification
from river.testing import conformance
from river.testing.conformance import adoption, failures, listening, seam, transactions
from river.testing.conformance.playing import AsyncPlayer, BlockingPlayer
from river.testing.conformance.stage import Stage, staged
from river_psycopg import AsyncPsycopgDriver, PsycopgDriver
from tests.support.handles import named as with_name
from tests.support.wrong_adopters import (
    ChangesRowFactory,
    ChangesTimeZone,
    ClosesTheHosts,
    CommitsTheHosts,
    OnAnotherConnection,
    ReadsAsTheHostPrints,
    RollsBackAfterErrors,
    RollsTheHostsBack,
    WithSavepoints,
    WithTheHostsRows,
    WrongColour,
    adopting,
    once,
    unchecked,
)
from tests.support.wrong_drivers import (
    ClosesForGood,
    ClosesThePool,
    CommitsAlways,
    CommitsLate,
    CommitsWhenCancelled,
    Deaf,
    FirstChannelOnly,
    ForgetsWhatCameBefore,
    KeepsTheDead,
    LeavesASetting,
    LeavesAutocommitOn,
    LeavesOpen,
    LeavesWhenCancelled,
    LosesSlotsWhenCancelled,
    NeverCloses,
    NeverEndsListening,
    OneConnection,
    OnlyAutocommit,
    OnlyTransactions,
    Raises,
    RawCommitErrors,
    RawConnectErrors,
    SendsAtOnce,
    SwallowsCommitErrors,
    SwallowsExceptions,
    Unquoted,
    WrapsWhatPasses,
    executing,
    listening_with,
    on_heard,
)
from tests.support.wrong_executors import (
    AbortsAnother,
    ByPrefix,
    CommentsAsTexts,
    EachPlaceholderOnce,
    FirstRows,
    NaivePlaceholders,
    NeverAborts,
    NothingWithoutRows,
    OfAnotherDatabase,
    OnlySelectsHaveRows,
    RawErrors,
    Remembering,
    RowsAsDicts,
    RowsByNameOnly,
    Sharing,
    SmallIntegersFirst,
    SwallowsErrors,
    Translating,
    WithoutCause,
    cancelled_is_transient,
    lost_is_other,
    on_errors,
    on_statements,
    on_values,
    said,
    set_for_the_session,
    transient_is_other,
    with_parameters,
    with_sql,
)

SOON_SECONDS = 0.5
"""How long a claim waits here for what must come: it does not come."""


# What must be caught, and by which claims.


@dataclass(frozen=True)
class Fault:
    """A wrong driver.

    Attributes:
        make: Makes the driver of a pool; or the adopter, or a driver of a URL.
        claims: The tests that fail.
    """

    make: Callable[[Any], Any]
    claims: tuple[str, ...]


def fault(make: Callable[[Any], Any], *claims: str) -> Fault:
    return Fault(make, claims)


OF_DRIVERS = {
    "rows as dicts": fault(
        executing(RowsAsDicts),
        "test_rows_are_sequences_of_values_in_the_order_of_the_columns",
        "test_columns_of_one_name_are_columns_of_their_own",
    ),
    "columns by name": fault(executing(RowsByNameOnly), "test_columns_of_one_name_are_columns_of_their_own"),
    "texts as bytes": fault(
        executing(on_values(lambda value: value.encode() if isinstance(value, str) else value)),
        "test_a_text_of_any_characters_crosses_unchanged",
        "test_a_text_of_several_mebibytes_crosses_unchanged",
        "test_values_have_no_types_but_those_of_the_seam",
    ),
    "texts stripped": fault(
        executing(on_values(lambda value: value.strip() if isinstance(value, str) else value)),
        "test_a_text_of_any_characters_crosses_unchanged",
    ),
    "long texts cut": fault(
        executing(on_values(lambda value: value[: 1 << 20] if isinstance(value, str) else value)),
        "test_a_text_of_several_mebibytes_crosses_unchanged",
    ),
    "texts escaped both ways": fault(
        executing(
            on_statements(
                lambda s: with_parameters(
                    s,
                    {
                        name: value.replace("\\", "\\\\") if isinstance(value, str) else value
                        for name, value in s.parameters.items()
                    },
                )
            )
        ),
        "test_a_text_of_any_characters_crosses_unchanged",
    ),
    "JSON decoded": fault(
        executing(on_values(lambda value: json.loads(value) if isinstance(value, str) and value[:1] == "{" else value)),
        "test_json_as_text_crosses_as_it_stands",
    ),
    "integers as decimals": fault(
        executing(on_values(lambda value: decimal.Decimal(value) if type(value) is int else value)),
        "test_integers_cross_unchanged_up_to_64_bits",
        "test_values_have_no_types_but_those_of_the_seam",
    ),
    "integers as floats": fault(
        executing(on_values(lambda value: int(float(value)) if type(value) is int else value)),
        "test_integers_cross_unchanged_up_to_64_bits",
    ),
    "types kept": fault(
        executing(SmallIntegersFirst), "test_one_statement_takes_small_and_large_integers_and_nulls_in_turn"
    ),
    "truth values as integers": fault(
        executing(on_values(lambda value: int(value) if isinstance(value, bool) else value)),
        "test_truth_values_cross_unchanged",
    ),
    "nulls as empty texts": fault(
        executing(on_values(lambda value: "" if value is None else value)),
        "test_nulls_cross_in_the_place_of_every_type",
        "test_values_have_no_types_but_those_of_the_seam",
    ),
    "each placeholder once": fault(executing(EachPlaceholderOnce), "test_a_parameter_may_be_used_more_than_once"),
    "placeholders by prefix": fault(executing(ByPrefix), "test_parameters_are_told_apart_by_their_whole_names"),
    "few parameters": fault(
        executing(on_statements(lambda s: with_parameters(s, dict(list(s.parameters.items())[:32])))),
        "test_many_parameters_go_into_one_statement",
    ),
    "every colon": fault(executing(NaivePlaceholders), "test_what_looks_like_a_placeholder_is_none"),
    "percent signs doubled": fault(
        executing(on_statements(lambda s: with_sql(s, s.sql.replace("%", "%%")))),
        "test_what_looks_like_a_placeholder_is_none",
    ),
    "comments as texts": fault(executing(CommentsAsTexts), "test_comments_are_no_part_of_a_statement"),
    "some rows": fault(executing(FirstRows), "test_all_rows_of_a_statement_come_back_in_its_order"),
    "nothing instead of no rows": fault(
        executing(NothingWithoutRows), "test_a_statement_without_rows_gives_an_empty_list"
    ),
    "rows of selects only": fault(executing(OnlySelectsHaveRows), "test_a_statement_that_writes_may_return_rows"),
    "answers remembered": fault(executing(Remembering), "test_an_unprepared_statement_outlives_a_change_of_its_table"),
    "no parameters unprepared": fault(
        executing(on_statements(lambda s: s if s.prepared else with_parameters(s, {}))),
        "test_an_unprepared_statement_takes_parameters_like_any",
    ),
    "another database": fault(executing(OfAnotherDatabase), "test_the_driver_says_what_it_is"),
    "commits late": fault(CommitsLate, "test_a_transaction_is_committed_when_it_is_left_and_not_before"),
    "commits always": fault(
        CommitsAlways,
        "test_a_transaction_is_rolled_back_by_any_exception_which_passes_as_it_is",
        "test_a_notification_of_a_transaction_that_was_rolled_back_is_never_heard",
    ),
    "swallows exceptions": fault(
        SwallowsExceptions,
        "test_a_transaction_is_rolled_back_by_any_exception_which_passes_as_it_is",
        "test_a_lost_connection_does_not_swallow_an_exception_of_the_caller",
    ),
    "swallows errors": fault(
        executing(SwallowsErrors),
        "test_a_transaction_is_rolled_back_as_a_whole_by_an_error_of_the_database",
        "test_every_failure_has_its_class_its_sqlstate_and_a_message",
    ),
    "only autocommit": fault(
        OnlyAutocommit,
        "test_a_transaction_is_committed_when_it_is_left_and_not_before",
        "test_all_statements_of_a_transaction_are_of_one_and_the_next_is_another",
        "test_a_notification_is_heard_after_its_commit_and_not_before",
    ),
    "only transactions": fault(
        OnlyTransactions,
        "test_a_statement_on_its_own_is_committed_at_once",
        "test_a_statement_on_its_own_stays_done_whatever_follows",
        "test_statements_on_their_own_are_in_no_transaction",
    ),
    "settings for the session": fault(
        executing(on_statements(set_for_the_session)), "test_a_setting_of_a_transaction_ends_with_it"
    ),
    "leaves transactions open": fault(LeavesOpen, "test_nothing_is_left_open_on_a_connection_that_was_left"),
    "leaves autocommit on": fault(LeavesAutocommitOn, "test_a_connection_is_given_back_as_it_was_found"),
    "leaves a setting": fault(LeavesASetting, "test_the_settings_of_a_session_stay_as_they_are"),
    "one connection": fault(OneConnection, "test_several_transactions_are_open_at_once_and_each_is_its_own"),
    "shares rows": fault(executing(Sharing), "test_many_calls_at_once_do_not_get_into_each_others_way"),
    "closes the host's pool": fault(ClosesThePool, "test_what_the_host_gave_works_on_after_close"),
    "raw errors": fault(
        executing(RawErrors),
        "test_every_failure_has_its_class_its_sqlstate_and_a_message",
    ),
    "no constraint": fault(
        executing(on_errors(lambda error: said(error, constraint=None))), "test_a_violated_constraint_is_named"
    ),
    "no cause": fault(executing(WithoutCause), "test_every_failure_has_its_class_its_sqlstate_and_a_message"),
    "transient errors not told": fault(
        executing(on_errors(transient_is_other)),
        "test_a_serialization_failure_is_transient",
        "test_a_lock_that_is_not_to_be_had_is_transient",
    ),
    "cancellations not told": fault(
        executing(on_errors(cancelled_is_transient)),
        "test_a_statement_that_takes_too_long_for_the_server_is_cancelled",
    ),
    "losses not told": fault(
        executing(on_errors(lost_is_other)),
        "test_a_connection_that_is_lost_between_two_statements_is_said_to_be_lost",
        "test_a_connection_that_is_lost_during_a_statement_is_said_to_be_lost",
    ),
    "commits whose errors are swallowed": fault(
        SwallowsCommitErrors,
        "test_an_error_at_the_commit_is_said_and_nothing_is_written",
        "test_a_connection_that_is_lost_before_the_commit_is_said_to_be_lost",
    ),
    "commits whose errors are raw": fault(
        RawCommitErrors,
        "test_an_error_at_the_commit_is_said_and_nothing_is_written",
        "test_a_connection_that_is_lost_before_the_commit_is_said_to_be_lost",
    ),
    "keeps the dead": fault(
        KeepsTheDead,
        "test_a_connection_that_is_lost_between_two_statements_is_said_to_be_lost",
        "test_a_connection_that_is_lost_during_a_statement_is_said_to_be_lost",
        "test_connections_that_are_lost_while_nobody_uses_them_are_replaced",
    ),
    "never aborts": fault(executing(NeverAborts), "test_abort_ends_a_statement_that_hangs"),
    "aborts another": fault(executing(AbortsAnother), "test_abort_ends_one_call_and_no_other"),
    "loses notifications": fault(
        listening_with(on_heard(lambda heard: heard[1:])),
        "test_notifications_are_heard_in_the_order_in_which_they_were_sent",
    ),
    "payloads stripped": fault(
        listening_with(on_heard(lambda heard: [Notification(each.channel, each.payload.strip()) for each in heard])),
        "test_a_payload_of_any_text_is_heard_unchanged",
    ),
    "payloads cut": fault(
        listening_with(on_heard(lambda heard: [Notification(each.channel, each.payload[:4096]) for each in heard])),
        "test_a_payload_of_any_text_is_heard_unchanged",
    ),
    "channels unquoted": fault(Unquoted, "test_a_channel_of_any_name_is_listened_to"),
    "sends at once": fault(
        SendsAtOnce,
        "test_a_notification_is_heard_after_its_commit_and_not_before",
        "test_a_notification_of_a_transaction_that_was_rolled_back_is_never_heard",
    ),
    "the first channel only": fault(FirstChannelOnly, "test_one_listener_hears_all_its_channels_and_no_others"),
    "hears twice": fault(
        listening_with(on_heard(lambda heard: heard * 2)),
        "test_a_notification_is_heard_by_every_listener_and_once",
    ),
    "forgets what came before": fault(
        listening_with(ForgetsWhatCameBefore), "test_what_comes_while_nobody_waits_is_heard_by_the_next_wait"
    ),
    "a wait that fails": fault(
        listening_with(Raises), "test_a_wait_without_anything_to_hear_ends_empty_and_the_next_one_hears"
    ),
    "deaf": fault(
        listening_with(Deaf),
        "test_abort_ends_a_wait",
        "test_a_lost_connection_ends_a_wait_with_an_error",
        "test_a_check_finds_out_whether_the_connection_lives",
    ),
    "never ends listening": fault(NeverEndsListening, "test_a_listener_has_a_connection_of_its_own_which_ends_with_it"),
    "wraps what passes": fault(WrapsWhatPasses, "test_an_exception_of_the_caller_passes_a_listener_as_it_is"),
}


OF_OWN_DRIVERS = {
    "never closes": fault(NeverCloses.connect, "test_close_ends_the_connections_that_the_driver_has_made"),
    "closes for good": fault(
        ClosesForGood.connect, "test_a_driver_may_be_closed_before_and_between_its_uses_and_twice"
    ),
    "raw errors": fault(RawConnectErrors.connect, "test_a_server_that_cannot_be_reached_is_a_lost_connection"),
}

OF_ASYNC_DRIVERS = {
    "commits when cancelled": fault(
        CommitsWhenCancelled,
        "test_a_task_that_is_cancelled_between_statements_writes_nothing",
    ),
    "leaves when cancelled": fault(
        LeavesWhenCancelled,
        "test_a_task_that_is_cancelled_in_a_statement_writes_nothing",
        "test_a_task_that_is_cancelled_between_statements_writes_nothing",
    ),
    "loses slots when cancelled": fault(
        LosesSlotsWhenCancelled, "test_a_driver_whose_tasks_are_cancelled_all_the_time_goes_on"
    ),
}

OF_ADOPTERS = {
    "the wrong colour": fault(adopting(WrongColour), "test_the_executor_has_the_colour_of_the_handle"),
    "another connection": fault(
        adopting(OnAnotherConnection),
        "test_statements_are_part_of_the_hosts_transaction",
        "test_the_hosts_end_is_rivers_end",
        "test_a_job_exists_if_and_only_if_the_host_commits",
        "test_listeners_are_told_by_the_hosts_commit",
        "test_a_savepoint_of_the_hosts_takes_along_what_was_written_in_it",
    ),
    "commits the host's transaction": fault(
        adopting(CommitsTheHosts),
        "test_the_hosts_end_is_rivers_end",
        "test_a_job_exists_if_and_only_if_the_host_commits",
        "test_listeners_are_told_by_the_hosts_commit",
    ),
    "rolls back after an error": fault(
        adopting(RollsBackAfterErrors), "test_a_savepoint_of_the_hosts_saves_the_transaction_from_an_error"
    ),
    "rolls the host's transaction back": fault(
        adopting(RollsTheHostsBack),
        "test_statements_are_part_of_the_hosts_transaction",
        "test_the_hosts_end_is_rivers_end",
    ),
    "closes the handle": fault(adopting(ClosesTheHosts), "test_the_hosts_end_is_rivers_end"),
    "adopts once": fault(once, "test_a_handle_is_adopted_again_for_the_next_transaction"),
    "errors of River's": fault(adopting(Translating), "test_the_librarys_own_errors_pass_untouched"),
    "with savepoints": fault(adopting(WithSavepoints), "test_the_librarys_own_errors_pass_untouched"),
    "unchecked": fault(
        unchecked,
        "test_a_handle_in_autocommit_is_refused_and_nothing_is_written",
        "test_a_failed_transaction_takes_nothing_until_it_is_rolled_back",
        "test_a_closed_handle_is_refused",
        "test_what_is_no_handle_is_left_to_other_adopters",
    ),
    "with the host's rows": fault(adopting(WithTheHostsRows), "test_values_cross_as_they_do_on_rivers_own_connections"),
    "changes the row factory": fault(adopting(ChangesRowFactory), "test_the_hosts_rows_and_settings_are_as_before"),
    "changes a setting": fault(adopting(ChangesTimeZone), "test_the_hosts_rows_and_settings_are_as_before"),
    "reads as the host prints": fault(
        adopting(ReadsAsTheHostPrints), "test_settings_of_the_hosts_session_change_nothing_that_river_reads"
    ),
}


# The suites, with a driver that is put in.


class Suite(conformance.DriverSuite):
    make_own: Callable[[str], Driver] = PsycopgDriver.connect

    @contextmanager
    def driver(self, url: str) -> Generator[Driver]:
        with ConnectionPool(url, min_size=0, max_size=8) as pool:
            yield PsycopgDriver(pool)

    def own_driver(self, url: str) -> Driver:
        return self.make_own(url)


class AsyncSuite(conformance.AsyncDriverSuite):
    @asynccontextmanager
    async def driver(self, url: str) -> AsyncGenerator[AsyncDriver]:
        async with AsyncConnectionPool(url, min_size=0, max_size=8, open=False) as pool:
            yield AsyncPsycopgDriver(pool)


class PsycopgHost:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.handle: Any = connection

    def begin(self) -> None:
        """The first statement begins."""

    def execute(self, text: str) -> Sequence[Any]:
        cursor = self.handle.execute(text.encode())
        return list(cursor.fetchall()) if cursor.description else []

    def commit(self) -> None:
        self.handle.commit()

    def rollback(self) -> None:
        self.handle.rollback()

    def close(self) -> None:
        self.handle.close()


class Handles(conformance.HandleSuite):
    adopter: Callable[[Any], Any] = staticmethod(adopting(lambda good: good))

    @contextmanager
    def driver(self, url: str) -> Generator[Driver]:
        with ConnectionPool(url, min_size=0, max_size=8) as pool:
            yield PsycopgDriver(pool)

    @contextmanager
    def host(self, url: str, *, autocommit: bool) -> Generator[PsycopgHost]:
        connection = psycopg.connect(url, autocommit=autocommit)
        try:
            yield PsycopgHost(connection)
        finally:
            connection.close()

    def adopt(self, handle: object) -> Any:
        return self.adopter(handle)


class Impatient(BlockingPlayer):
    event_seconds = SOON_SECONDS
    deadline_seconds = 3.0


class AsyncImpatient(AsyncPlayer):
    event_seconds = SOON_SECONDS
    deadline_seconds = 3.0


@pytest.fixture(scope="module")
def at(database_url: str) -> Iterator[tuple[str, str]]:
    """A URL whose sessions have a name, and a schema as a stage has it."""
    url = with_name(database_url, "river_conformance_catches")
    player = BlockingPlayer()
    with ConnectionPool(database_url, min_size=0, max_size=4) as pool:
        with player.around(staged(player, PsycopgDriver(pool), url)) as stage:
            yield url, stage.schema
            # Wrong drivers leave transactions open.
            terminate(database_url)


def terminate(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND query <> ''",
            ["river_conformance_catches"],
        )


def combinations(test: Any) -> Iterator[dict[str, Any]]:
    """The values with which pytest would call a test."""
    sets = [
        [(mark.args[0], value) for value in mark.args[1]]
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "parametrize"
    ]
    for chosen in itertools.product(*sets):
        yield dict(chosen)


def broken(suite: Any, name: str, stage: Stage) -> list[BaseException]:
    """The failures of a test, called with each of its parameters, up to the first."""
    test = getattr(suite, name)
    for parameters in combinations(test):
        try:
            test(stage, **parameters)
        except (Exception, pytest.fail.Exception) as failure:
            return [failure]
    return []


@contextmanager
def acting(url: str, schema: str, make: Callable[[Any], Any]) -> Generator[Stage]:
    with ConnectionPool(url, min_size=0, max_size=8, timeout=2) as pool:
        driver = make(pool)
        try:
            yield Stage(Impatient(), driver, schema, url)
        finally:
            for connection in getattr(driver, "kept", ()):
                connection.close()


@contextmanager
def acting_async(url: str, schema: str, make: Callable[[Any], Any]) -> Generator[Stage]:
    @asynccontextmanager
    async def opened(player: AsyncPlayer) -> AsyncGenerator[Stage]:
        async with AsyncConnectionPool(url, min_size=0, max_size=8, timeout=2, open=False) as pool:
            driver = make(pool)
            yield Stage(player, driver, schema, url)
            for connection in getattr(driver, "kept", ()):
                await connection.close()

    with asyncio.Runner() as runner:
        player = AsyncImpatient(runner)
        with player.around(opened(player)) as stage:
            yield stage


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_DRIVERS)
def test_a_wrong_driver_is_caught(name: str, at: tuple[str, str]) -> None:
    for claim in OF_DRIVERS[name].claims:
        with acting(*at, OF_DRIVERS[name].make) as stage:
            assert broken(Suite(), claim, stage), claim


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_OWN_DRIVERS)
def test_a_wrong_driver_with_connections_of_its_own_is_caught(name: str, at: tuple[str, str]) -> None:
    class Own(Suite):
        def own_driver(self, url: str) -> Driver:
            made: Driver = OF_OWN_DRIVERS[name].make(url)
            return made

    with acting(*at, PsycopgDriver) as stage:
        for claim in OF_OWN_DRIVERS[name].claims:
            assert broken(Own(), claim, stage), claim


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_ASYNC_DRIVERS)
def test_a_wrong_asyncio_driver_is_caught(name: str, at: tuple[str, str]) -> None:
    for claim in OF_ASYNC_DRIVERS[name].claims:
        with acting_async(*at, OF_ASYNC_DRIVERS[name].make) as stage:
            assert broken(AsyncSuite(), claim, stage), claim


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_ADOPTERS)
def test_a_wrong_adopter_is_caught(name: str, at: tuple[str, str]) -> None:
    class Wrongly(Handles):
        adopter = staticmethod(OF_ADOPTERS[name].make)

    with acting(*at, PsycopgDriver) as stage:
        for claim in OF_ADOPTERS[name].claims:
            assert broken(Wrongly(), claim, stage), claim


def named_claims(*faults: dict[str, Fault]) -> set[str]:
    return {claim for each in faults for fault in each.values() for claim in fault.claims}


def claims_of(*groups: type) -> set[str]:
    return {name for group in groups for name in dir(group) if name.startswith("test_")}


def test_every_claim_about_a_driver_is_broken_by_a_wrong_one() -> None:
    groups = (
        seam.SeamClaims,
        transactions.TransactionClaims,
        transactions.OwnClaims,
        failures.FailureClaims,
        failures.CancellationClaims,
        listening.ListeningClaims,
    )
    assert claims_of(*groups) == named_claims(OF_DRIVERS, OF_OWN_DRIVERS, OF_ASYNC_DRIVERS)


def test_every_claim_about_an_adopter_is_broken_by_a_wrong_one() -> None:
    assert claims_of(adoption.AdoptionClaims) == named_claims(OF_ADOPTERS)


@pytest.mark.parametrize("claim", sorted(named_claims(OF_DRIVERS, OF_OWN_DRIVERS)))
def test_a_good_driver_is_not_caught(claim: str, at: tuple[str, str]) -> None:
    with acting(*at, PsycopgDriver) as stage:
        assert broken(Suite(), claim, stage) == []


@pytest.mark.parametrize("claim", sorted(named_claims(OF_ASYNC_DRIVERS)))
def test_a_good_asyncio_driver_is_not_caught(claim: str, at: tuple[str, str]) -> None:
    with acting_async(*at, AsyncPsycopgDriver) as stage:
        assert broken(AsyncSuite(), claim, stage) == []


@pytest.mark.parametrize("claim", sorted(named_claims(OF_ADOPTERS)))
def test_a_good_adopter_is_not_caught(claim: str, at: tuple[str, str]) -> None:
    with acting(*at, PsycopgDriver) as stage:
        assert broken(Handles(), claim, stage) == []
