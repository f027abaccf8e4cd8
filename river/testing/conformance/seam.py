"""What crosses the seam between River and a database library, and how statements are written."""

from __future__ import annotations

import pytest

from ...operation import Query, Rows, Statement, Value
from .playing import claim
from .stage import Session, Stage, question

INTEGERS = (0, 1, -1, 32_767, 32_768, -32_769, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63))

TEXTS = {
    "empty": "",
    "blank": "  \t\r\n ",
    "quotation marks": "'' \" ` \\' '",
    "backslashes": r"\ \\ \x41 \u0041 \n",
    "percent signs": "100% %s %% %(name)s %b",
    "colons": ":name ::text a:b : :1 12:30",
    "other placeholders": "$1 ? @name {name} ${name} #1",
    "comments": "-- no comment /* nor this */ ;",
    "words of SQL's and JSON's": "NULL null true 1 {} [] {a,b} (1,2)",
    "control characters": "".join(map(chr, (*range(1, 32), 127, 128, 159))),
    "beyond ASCII": "Grüße, 東京, עברית, Ωmega, naïve e\u0301",
    "beyond 16 bits": "😀 𝄞 \U0010ffff",
    "odd code points": "\ufeff \u200b \u2028 \u2029 \ufffd \uffff",
    "a digit": "1",
    "a date": "2026-01-02T03:04:05+06:00",
    "a long line": "x" * 100_000,
}

BIG = 6 * 1024 * 1024
"""Characters of which each is two bytes: more than any buffer, as a batch of jobs may be."""

LITERALS: dict[str, tuple[str, Value]] = {
    "a time": ("'12:30:59'", "12:30:59"),
    "a colon in a text": ("'a:b, c: d'", "a:b, c: d"),
    "JSON": ("""'{"a": 1, "b": [true, null]}'""", '{"a": 1, "b": [true, null]}'),
    "two colons": ("(1::bigint)::text", "1"),
    "percent signs": ("'100%' || CAST(7 % 4 AS text)", "100%3"),
    "a percent sign before a letter": ("'%s %d %(y)s %%'", "%s %d %(y)s %%"),
    "a pattern": ("'50% off' LIKE '50%'", True),
    "a backslash": ("'a\\b'", "a\\b"),
    "a doubled quotation mark": ("'it''s'", "it's"),
    "a question mark": ("""CAST(CAST('{"a": 1}' AS jsonb) ? 'a' AS text) || '?'""", "true?"),
    "a dollar": ("'$1 costs $2'", "$1 costs $2"),
    "braces": ("'{0} {} {name}'", "{0} {} {name}"),
    "a slice": ("CAST((ARRAY[1, 2, 3])[1:2] AS text)", "{1,2}"),
    "a semicolon": ("'a;b'", "a;b"),
    "beyond ASCII": ("'Grüße 😀'", "Grüße 😀"),
}

COMMENTED = """\
-- It is the host's: a comment may hold a quotation mark, 100 %, a question? and "more".
SELECT /* here too: isn't 5 % of it $1 */ CAST(:number AS bigint)
-- And the last line is one.
"""


class SeamClaims:
    """Values, rows and statements."""

    @claim
    async def test_integers_cross_unchanged_up_to_64_bits(self, stage: Stage) -> None:
        for number in INTEGERS:
            assert exact(await stage.value("SELECT CAST(:number AS bigint)", number=number)) == (int, number)
        assert exact(await stage.value("SELECT CAST(:number AS integer)", number=2**31 - 1)) == (int, 2**31 - 1)
        assert exact(await stage.value("SELECT CAST(:number AS smallint)", number=-32_768)) == (int, -32_768)

    @claim
    async def test_one_statement_takes_small_and_large_integers_and_nulls_in_turn(self, stage: Stage) -> None:
        # Libraries that prepare a statement, at the first or the fifth time, settle the types of its parameters then.
        async with stage.autocommit() as session:
            for number in (*INTEGERS, None, *INTEGERS, None, 1):
                assert await session.value("SELECT CAST(:number AS bigint)", number=number) == number

    @claim
    async def test_truth_values_cross_unchanged(self, stage: Stage) -> None:
        for flag in (True, False):
            assert exact(await stage.value("SELECT CAST(:flag AS boolean)", flag=flag)) == (bool, flag)
        assert exact(await stage.value("SELECT 1 = 1")) == (bool, True)

    @claim
    async def test_nulls_cross_in_the_place_of_every_type(self, stage: Stage) -> None:
        sql = "SELECT CAST(:a AS bigint), CAST(:b AS text), CAST(:c AS boolean), CAST(:d AS text) IS NULL, NULL"
        ((number, text, flag, is_null, nothing),) = await stage.ask(sql, a=None, b=None, c=None, d=None)
        assert (number, text, flag, is_null, nothing) == (None, None, None, True, None)

    @pytest.mark.parametrize("name", TEXTS)
    @claim
    async def test_a_text_of_any_characters_crosses_unchanged(self, stage: Stage, name: str) -> None:
        text = TEXTS[name]
        sql = "SELECT CAST(:text AS text), encode(convert_to(CAST(:text AS text), 'UTF8'), 'hex')"
        ((back, hexadecimal),) = await stage.ask(sql, text=text)
        assert exact(back) == (str, text)
        # What the server has stored, too: what is wrong in both directions would cancel out.
        assert hexadecimal == text.encode().hex()

    @claim
    async def test_a_text_of_several_mebibytes_crosses_unchanged(self, stage: Stage) -> None:
        text = "ü:%'\\" * (BIG // 6) + "the end"
        ((back, length),) = await stage.ask("SELECT CAST(:text AS text), length(CAST(:text AS text))", text=text)
        assert length == len(text)
        assert back == text

    @claim
    async def test_json_as_text_crosses_as_it_stands(self, stage: Stage) -> None:
        text = '{"b": [1, 2.50, null], "a": "\\u0041 \\\\ \\" é", "a": 1e400}'
        assert exact(await stage.value("SELECT CAST(CAST(CAST(:text AS text) AS json) AS text)", text=text)) == (
            str,
            text,
        )

    @claim
    async def test_a_parameter_may_be_used_more_than_once(self, stage: Stage) -> None:
        sql = "SELECT CAST(:a AS text) || CAST(:b AS text) || CAST(:a AS text), CAST(:a AS text) = CAST(:a AS text)"
        assert rows_of(await stage.ask(sql, a="x", b="-")) == [["x-x", True]]

    @claim
    async def test_parameters_are_told_apart_by_their_whole_names(self, stage: Stage) -> None:
        sql = "SELECT CAST(:a AS text), CAST(:ab AS text), CAST(:a_1 AS text), CAST(:a1 AS text), CAST(:A AS text)"
        assert rows_of(await stage.ask(sql, A="5", ab="2", a1="4", a="1", a_1="3")) == [["1", "2", "3", "4", "5"]]

    @claim
    async def test_many_parameters_go_into_one_statement(self, stage: Stage) -> None:
        names = [f"p{number}" for number in range(60)]
        sql = "SELECT " + " + ".join(f"CAST(:{name} AS bigint)" for name in names)
        assert await stage.value(sql, **{name: 2**number for number, name in enumerate(names)}) == 2**60 - 1

    @pytest.mark.parametrize("name", LITERALS)
    @claim
    async def test_what_looks_like_a_placeholder_is_none(self, stage: Stage, name: str) -> None:
        sql, expected = LITERALS[name]
        assert await stage.value(f"SELECT {sql}") == expected
        assert rows_of(await stage.ask(f"SELECT {sql}, CAST(:x AS bigint)", x=5)) == [[expected, 5]]

    @claim
    async def test_comments_are_no_part_of_a_statement(self, stage: Stage) -> None:
        assert await stage.value(COMMENTED, number=7) == 7

    @claim
    async def test_rows_are_sequences_of_values_in_the_order_of_the_columns(self, stage: Stage) -> None:
        rows = await stage.ask("SELECT 1 AS z, 'two' AS a, true AS m, NULL AS b UNION ALL SELECT 2, 'x', false, 'y'")
        assert len(rows) == 2
        first = rows[0]
        assert (len(first), first[0], first[1], first[2], first[3]) == (4, 1, "two", True, None)
        number, text, flag, nothing = first
        assert (number, text, flag, nothing) == (1, "two", True, None)
        assert rows_of(rows) == [[1, "two", True, None], [2, "x", False, "y"]]

    @claim
    async def test_columns_of_one_name_are_columns_of_their_own(self, stage: Stage) -> None:
        assert rows_of(await stage.ask("SELECT 1 AS a, 2 AS a, 'x', 'y'")) == [[1, 2, "x", "y"]]

    @claim
    async def test_values_have_no_types_but_those_of_the_seam(self, stage: Stage) -> None:
        rows = await stage.ask("SELECT 1, CAST(2 AS smallint), count(*), 'x', CAST('y' AS varchar), true, NULL")
        assert [type(value) for value in rows[0]] == [int, int, int, str, str, bool, type(None)]

    @claim
    async def test_all_rows_of_a_statement_come_back_in_its_order(self, stage: Stage) -> None:
        rows = await stage.ask("SELECT n FROM generate_series(1, 20000) AS n ORDER BY n DESC")
        assert [row[0] for row in rows] == list(range(20_000, 0, -1))

    @claim
    async def test_a_statement_without_rows_gives_an_empty_list(self, stage: Stage) -> None:
        name, table = stage.name(), stage.table()
        for sql in (
            "SELECT 1 WHERE false",
            f"CREATE TABLE {table} (id bigint)",
            f"INSERT INTO {stage.note} (name) VALUES ('{name}')",
            f"UPDATE {stage.note} SET number = 1 WHERE name = '{name}'",
            f"DELETE FROM {stage.note} WHERE name = '{name}'",
            f"COMMENT ON TABLE {table} IS 'made'",
            f"DROP TABLE {table}",
            "DO $$ BEGIN PERFORM 1; END $$",
        ):
            assert list(await stage.ask(sql)) == [], sql

    @claim
    async def test_a_statement_that_writes_may_return_rows(self, stage: Stage) -> None:
        name = stage.name()
        sql = f"INSERT INTO {stage.note} (name, number) VALUES (CAST(:name AS text), 7) RETURNING name, number"
        assert rows_of(await stage.ask(sql, name=name)) == [[name, 7]]
        sql = f"""
            WITH gone AS (DELETE FROM {stage.note} WHERE name = CAST(:name AS text) RETURNING number)
            SELECT count(*), max(number) FROM gone
        """
        assert rows_of(await stage.ask(sql, name=name)) == [[1, 7]]
        assert await stage.notes(name) == []

    @claim
    async def test_an_unprepared_statement_outlives_a_change_of_its_table(self, stage: Stage) -> None:
        table = stage.table()
        counting = f"SELECT count(*), max(to_jsonb(t) ->> 'b') FROM {table} AS t"
        async with stage.autocommit() as session:
            for _ in range(2):
                await session.run(unprepared(f"CREATE TABLE {table} (a bigint)"))
                for _ in range(8):
                    assert rows_of(await session.run(unprepared(counting))) == [[0, None]]
                await session.run(unprepared(f"ALTER TABLE {table} ADD COLUMN b text"))
                await session.run(unprepared(f"INSERT INTO {table} VALUES (1, 'x')"))
                assert rows_of(await session.run(unprepared(counting))) == [[1, "x"]]
                await session.run(unprepared(f"DROP TABLE {table}"))

    @claim
    async def test_an_unprepared_statement_takes_parameters_like_any(self, stage: Stage) -> None:
        query = Query(Statement("SELECT CAST(:a AS bigint), CAST(:b AS text)", {"a": 2**40, "b": "ü"}, False), rows_of)
        assert await stage.run(query) == [[2**40, "ü"]]

    @claim
    async def test_the_driver_says_what_it_is(self, stage: Stage) -> None:
        assert stage.driver.database in ("postgresql", "sqlite")
        assert type(stage.driver.supports_listen) is bool
        async with stage.transaction() as session:
            assert_is_of(session, stage)
        async with stage.autocommit() as session:
            assert_is_of(session, stage)


def exact(value: Value) -> tuple[type, Value]:
    """A value with its type: True is not 1 here."""
    return type(value), value


def rows_of(rows: Rows) -> list[list[Value]]:
    """Rows of whatever sequence, as lists."""
    return [list(row) for row in rows]


def unprepared(sql: str) -> Query[Rows]:
    """A statement that must not be kept prepared."""
    query = question(sql)
    return Query(Statement(query.statement.sql, {}, prepared=False), query.decode)


def assert_is_of(session: Session, stage: Stage) -> None:
    """The executors of a driver know its database."""
    assert session.executor.database == stage.driver.database
