"""What is in the wheel, and what importing River brings in."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PACKAGES = ("river", "river_asyncpg", "river_psycopg", "river_sqlalchemy")

DATABASE_LIBRARIES = ("psycopg", "psycopg_pool", "psycopg2", "asyncpg", "pg8000", "sqlalchemy", "alembic")


def python(*arguments: str) -> str:
    """The output of an interpreter that has the project's folder first on its path, as `python -m` has."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The names in a wheel that is built by the backend alone, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("dist")
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (wheel,) = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_each_package_and_its_type_marker(wheel_files: frozenset[str], package: str) -> None:
    assert {f"{package}/__init__.py", f"{package}/py.typed"} <= wheel_files


def test_the_wheel_holds_nothing_else_at_its_top(wheel_files: frozenset[str]) -> None:
    top = {name.partition("/")[0] for name in wheel_files}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_holds_every_migration(wheel_files: frozenset[str]) -> None:
    sources = {"river": ROOT / "river", "river_sqlalchemy": ROOT / "drivers" / "river_sqlalchemy"}
    scripts = [*sources["river"].rglob("*.sql"), *sources["river_sqlalchemy"].glob("migrations/river_*.py")]
    assert len(scripts) == 16 + 8
    for script in scripts:
        assert any(name.endswith(f"/{script.name}") for name in wheel_files), script.name


def test_the_wheel_holds_the_license(wheel_files: frozenset[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_files)


def test_alembic_is_the_installed_library_and_not_the_folder_of_that_name() -> None:
    found = Path(python("-c", "import alembic; print(alembic.__file__)"))
    assert found.parent.parent.name in {"site-packages", "dist-packages"}


@pytest.mark.parametrize("module", ["river", "river.testing.server"])
def test_importing_the_core_imports_no_database_library_and_no_test_runner(module: str) -> None:
    loaded = python("-c", f"import sys, {module}; print(*sys.modules)").split()
    assert set(loaded).isdisjoint({*DATABASE_LIBRARIES, "pytest", "river_psycopg", "river_sqlalchemy"})
