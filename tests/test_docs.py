"""What the documents show runs, is typed under the strictest rules, and names what there is."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import MISSING, fields
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from river import Client, Config, DefaultRetryPolicy, JobArgs, QueueConfig, cli
from tests.support.schemas import scratch
from tests.support.snippets import (
    AT_MOST_SECONDS,
    ROOT,
    environment,
    mypy_complaints,
    pyright_complaints,
    rows,
    running,
    snippets,
)

DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]

LINK = re.compile(r"\]\(([^)#:]*)#?([^):]*)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


ENDED = Counter(
    {
        ("welcome", "default", "completed"): 7,
        ("welcome", "default", "pending"): 1,
        ("welcome", "mail", "scheduled"): 1,
        ("invoice", "default", "completed"): 4,
        ("invoice", "default", "scheduled"): 1,
        ("report", "slow", "completed"): 1,
        ("ping", "default", "completed"): 1,
        ("ping", "default", "cancelled"): 1,
        ("import", "default", "completed"): 1,
        ("resize", "default", "completed"): 1,
    }
)
"""What usage.md inserts: kind, queue, and the state in the end."""

CLAIMED_LONG_AGO = """\
UPDATE river_job SET state = 'running', attempt = %s, attempted_at = now() - make_interval(hours => %s) WHERE id = %s
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The programs of the documents: those of a page are parts of one."""
    (tmp_path / "usage.py").write_text("\n".join(snippets("docs/usage.md")))
    (recipe,) = snippets("docs/guarantees.md")
    (tmp_path / "recipe.py").write_text(recipe)
    (migrating,) = snippets("docs/schema.md")
    (tmp_path / "migrating.py").write_text(migrating)
    (tmp_path / "models.py").write_text("\n".join(snippets("docs/models.md")))
    (tmp_path / "managing.py").write_text("\n".join(snippets("docs/manage.md")))
    (tmp_path / "once.py").write_text("\n".join(snippets("docs/unique.md")))
    (tmp_path / "test_river_mini.py").write_text("\n".join(snippets("docs/drivers.md")))
    return tmp_path


@pytest.mark.slow
def test_the_program_of_usage_runs_and_every_job_ends_as_the_page_says(
    schema_connection: psycopg.Connection, database_url: str, schema: str, programs: Path
) -> None:
    def ended() -> bool:
        return Counter(rows(schema_connection, schema, "kind queue state", "river_job")) == ENDED

    with running(programs / "usage.py", environment(database_url, schema), stderr=subprocess.STDOUT) as process:
        printed = [process.line()]
        # Only run(), at the end, starts a client after logging is configured.
        while "client started" not in printed[-1]:
            printed.append(process.line())
            assert printed[-1], "\n".join(printed)
        give_up_at = time.monotonic() + AT_MOST_SECONDS
        while not ended():
            assert time.monotonic() < give_up_at, rows(schema_connection, schema, "kind queue state", "river_job")
            time.sleep(0.02)
        assert process.interrupt() == 0
    assert printed[:3] == [
        "there already: True",
        "args of 'resize' cannot be inserted: field 'path' holds U+0000, which PostgreSQL cannot store",
        "5 inserted",
    ]
    assert schema_connection.execute(
        sql.SQL("SELECT customer_id FROM {} ORDER BY 1").format(sql.Identifier(schema, "invoice"))
    ).fetchall() == [(1,), (2,), (3,), (4,)]


def test_the_recipe_rescues_what_was_left_behind_and_leaves_what_runs(
    schema_connection: psycopg.Connection, database_url: str, schema: str, programs: Path
) -> None:
    with psycopg.connect(environment(database_url, schema)["DATABASE_URL"]) as connection:
        batch = [JobArgs(kind, {}) for kind in ("killed", "at_its_end", "still_runs")]
        killed, at_its_end, still_runs = [
            inserted.job.id for inserted in Client(None).insert_many_tx(connection, batch)
        ]
        for job_id, attempt, hours in ((killed, 1, 2), (at_its_end, 25, 2), (still_runs, 1, 0)):
            connection.execute(CLAIMED_LONG_AGO, (attempt, hours, job_id))
    with running(programs / "recipe.py", environment(database_url, schema)) as process:
        assert process.line() == f"rescued {killed} killed"
        assert process.line() == f"rescued {at_its_end} at_its_end"
        assert process.line() == ""
        assert process.end() == 0
    assert rows(schema_connection, schema, "kind state attempt", "river_job") == [
        ("killed", "retryable", 1),
        ("at_its_end", "discarded", 25),
        ("still_runs", "running", 1),
    ]


def test_the_program_of_schema_migrates(database_url: str, programs: Path) -> None:
    with scratch(database_url) as empty:
        with running(programs / "migrating.py", environment(database_url, f'"{empty.name}"')) as process:
            printed = [process.line() for _ in range(9)]
            assert process.end() == 0
        assert printed[0] == "applied 1 create river migration"
        assert printed[8] == "[8, 7]"
        assert empty.versions == list(range(1, 9))


def test_the_program_of_models_reads_jobs_and_may_not_write_them(
    schema_connection: psycopg.Connection, database_url: str, schema: str, programs: Path
) -> None:
    with running(programs / "models.py", environment(database_url, schema)) as process:
        printed = [process.line() for _ in range(3)]
        assert process.end() == 0
    ((job_id,),) = rows(schema_connection, schema, "id", "river_job")
    assert printed[:2] == [f"job {job_id} will remind someone@example.com", "remind available ['weekly'] None"]
    assert printed[2].startswith("RiverJob is read-only: its rows cannot be deleted")


def test_the_program_of_manage_lists_and_changes_jobs(
    schema_connection: psycopg.Connection, database_url: str, schema: str, programs: Path
) -> None:
    with running(programs / "managing.py", environment(database_url, schema)) as process:
        printed = [process.line() for _ in range(15)]
        assert process.end() == 0
    assert printed == [
        "email available ['weekly']",
        "job 0 was not found: it was deleted, or it is not visible to this transaction",
        "cancelled",
        "available 25",
        "{'sent': True} ops",
        "deleted True",
        "True",
        *(["True default"] * 2),
        "2",
        *(["found True"] * 2),
        "2",
        *(["listed True"] * 2),
    ]
    assert rows(schema_connection, schema, "kind state", "river_job") == [("email", "available")] * 2


def test_the_program_of_unique_inserts_what_is_not_there_already(
    schema_connection: psycopg.Connection, database_url: str, schema: str, programs: Path
) -> None:
    with running(programs / "once.py", environment(database_url, schema)) as process:
        printed = [process.line() for _ in range(4)]
        assert process.end() == 0
    assert printed == ["False True False", "True", "[False, True]", "[False, False]"]
    assert Counter(rows(schema_connection, schema, "kind", "river_job")) == {("sync",): 2, ("bill",): 3}


@pytest.mark.slow
def test_the_driver_of_drivers_passes_the_suite(database_url: str, programs: Path) -> None:
    # Away from this folder: whoever writes a driver has neither our tests nor their settings.
    command = ["pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    ran = subprocess.run(
        [sys.executable, "-m", *command, "test_river_mini.py"],
        cwd=programs,
        env={**os.environ, "RIVER_TEST_DATABASE_URL": database_url, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert re.search(r"^\d{3} passed in", ran.stdout, re.MULTILINE), ran.stdout[-200:]


def test_schema_names_every_command_and_every_option_of_a_migration() -> None:
    page = (ROOT / "docs/schema.md").read_text()
    named = re.findall(r"^\| `river ([\w-]+)[^`]*` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(cli.river.commands)
    table = dict(re.findall(r"^\| `(--[\w-]+)` \| ([^|]*?) ?\|", page, re.MULTILINE))
    for command in ("migrate-up", "migrate-down"):
        options = {option.opts[0]: option.default for option in cli.river.commands[command].params}
        assert sorted(table) == sorted(options)
    for option in ("--line", "--statement-timeout", "--lock-timeout"):
        assert table[option] == f"`{options[option]}`"


@pytest.mark.slow
def test_mypy_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    assert mypy_complaints(programs) == ""


@pytest.mark.slow
def test_pyright_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    assert pyright_complaints(programs) == ""


def test_usage_names_every_option_of_a_client_and_its_default() -> None:
    page = (ROOT / "docs/usage.md").read_text()
    options = page.partition("## A client's options")[2].partition("\n## ")[0]
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", options, re.MULTILINE))
    assert list(table) == [option.name for option in fields(Config)]
    config = Config()
    for option in ("schema", "max_attempts", "fetch_cooldown", "fetch_poll_interval", "poll_only"):
        assert table[option].removesuffix(" s") == f"`{getattr(config, option)!r}`"
    assert table["skip_unknown_job_check"] == f"`{config.skip_unknown_job_check!r}`"
    assert isinstance(config.retry_policy, DefaultRetryPolicy)
    assert table["retry_policy"] == "`DefaultRetryPolicy()`"
    assert all(f"`{option.name}`" in options for option in fields(QueueConfig) if option.default is not MISSING)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files_and_headings(document: str) -> None:
    path = ROOT / document
    for link, anchor in LINK.findall(path.read_text()):
        target = path.parent / link if link else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def test_every_test_that_the_field_cases_name_is_there() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "tests/FIELD_CASES.md").read_text()))
    assert len(named) > 20
    assert {name for name in named if f"def {name}(" not in tests} == set()


def anchors(page: Path) -> list[str]:
    """The names under which a page's headings can be linked."""
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(page.read_text())]
