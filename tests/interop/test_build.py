"""The Go program can be built where Go is, says why it cannot where it is not, and answers as its contract says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.build import SOURCE, GoUnavailableError, build

# The build has a deadline of its own, which is longer than that of a test.
pytestmark = pytest.mark.timeout(120, func_only=True)


NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def test_where_go_is_not_installed_that_is_the_reason(tmp_path: Path) -> None:
    with pytest.raises(GoUnavailableError, match="Go is not installed"):
        build(tmp_path / "program", {"PATH": str(tmp_path)}, print)
    assert list(tmp_path.iterdir()) == []


@needs_go
def test_where_the_modules_cannot_be_had_that_is_the_reason(tmp_path: Path) -> None:
    offline = {**os.environ, "GOPROXY": "off", "GOMODCACHE": str(tmp_path / "modules"), "GOFLAGS": "-modcacherw"}
    with pytest.raises(GoUnavailableError, match=r"the Go modules cannot be downloaded: .*GOPROXY=off"):
        build(tmp_path / "program", offline, print)
    assert not (tmp_path / "program").exists()


@needs_go
def test_the_go_source_is_formatted() -> None:
    run = subprocess.run(["gofmt", "-l", "."], cwd=SOURCE, capture_output=True, text=True, check=True)
    assert run.stdout == ""


def test_go_vet_finds_nothing(go_program: Path) -> None:
    run = subprocess.run(["go", "vet", "."], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def answer(program: Path, *arguments: str, url: str = NOWHERE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATABASE_URL": url}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_a_result_is_one_json_document_on_standard_output(go_program: Path) -> None:
    run = answer(go_program, "versions")
    assert (run.returncode, run.stderr) == (0, "")
    assert [each["version"] for each in json.loads(run.stdout)] == list(range(1, 9))


@pytest.mark.parametrize(
    ("arguments", "url", "error"),
    [
        (["applied"], NOWHERE, "connect"),
        (["applied"], "", "DATABASE_URL is not set"),
        (["versions", "-line", "other"], NOWHERE, "migration line does not exist"),
        (["migrate", "-direction", "sideways"], NOWHERE, 'up or down, not "sideways"'),
        (["insert", "-args", "{"], NOWHERE, "not JSON"),
    ],
)
def test_a_failure_is_an_exit_code_of_1_and_an_error_on_standard_error(
    go_program: Path, arguments: list[str], url: str, error: str
) -> None:
    run = answer(go_program, *arguments, url=url)
    assert (run.returncode, run.stdout) == (1, "")
    assert error in run.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "there are: applied, insert, migrate, validate, versions"),
        (["nonsense"], 'no command "nonsense"'),
        (["applied", "-nonsense"], "-nonsense"),
        (["applied", "nonsense"], 'not ["nonsense"]'),
    ],
)
def test_a_command_line_without_sense_is_an_exit_code_of_2(go_program: Path, arguments: list[str], error: str) -> None:
    run = answer(go_program, *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert error in run.stderr
