"""``make bench``: River's speed as a share of what raw psycopg reaches on the same schema, in the same run.

    python -m benchmarks.run [--jobs N] [--slots N] [--inserts N] [--rounds N] [--json FILE]

The server is that of RIVER_TEST_DATABASE_URL, else DATABASE_URL. Absolute numbers are the machine's; the
ratios are ours, so floor and product take turns and each ratio is of neighbours. Nothing is asserted here.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click
from rich.console import Console
from rich.table import Table

from benchmarks import product
from benchmarks.database import connect, empty, fill, scratch_schema
from benchmarks.floor import drain as floor_drain
from benchmarks.floor import enqueue as floor_enqueue
from benchmarks.result import Comparison, Result

Measure: TypeAlias = Callable[[], Result]

AT_LEAST_ONE = click.IntRange(min=1)


@click.command()
@click.option("--jobs", default=20_000, type=AT_LEAST_ONE, show_default=True, help="Jobs of a drain.")
@click.option("--slots", default=100, type=AT_LEAST_ONE, show_default=True, help="Jobs that run at the same time.")
@click.option("--inserts", default=5_000, type=AT_LEAST_ONE, show_default=True, help="Jobs of an enqueue run.")
@click.option("--rounds", default=5, type=AT_LEAST_ONE, show_default=True, help="Runs of each side, in turns.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the results here too.")
def main(jobs: int, slots: int, inserts: int, rounds: int, json_file: Path | None) -> None:
    """Measure River against raw psycopg."""
    url = database_url()
    console = Console()
    with scratch_schema(url) as schema:
        console.print(f"PostgreSQL {server_version(url)}, schema {schema}, {rounds} rounds")
        comparisons = [
            compare_drain(console, url, schema, jobs, slots, rounds),
            compare_enqueue(console, url, schema, inserts, rounds),
        ]
        documents = measure_documents(url, schema, jobs)
    console.print(table_of(comparisons))
    console.print(f"raw psycopg, 1,000 rows a statement: {documents.per_second:,.0f} inserts/s")
    if json_file is not None:
        json_file.write_text(json.dumps([summary(each) for each in comparisons], indent=2) + "\n")


def database_url() -> str:
    """Where to measure; a server that keeps nothing else is best."""
    for name in ("RIVER_TEST_DATABASE_URL", "DATABASE_URL"):
        if url := os.environ.get(name):
            return url
    raise click.UsageError("set RIVER_TEST_DATABASE_URL or DATABASE_URL to a PostgreSQL server")


def server_version(url: str) -> str:
    """As the server calls itself."""
    with connect(url) as connection:
        return connection.info.parameter_status("server_version") or "of an unknown version"


def compare_drain(console: Console, url: str, schema: str, jobs: int, slots: int, rounds: int) -> Comparison:
    """Work a full queue of no-op jobs."""

    def of_floor() -> Result:
        fill(url, schema, jobs)
        return floor_drain.drain(url, schema, jobs, slots)

    def of_product() -> Result:
        fill(url, schema, jobs)
        return product.drain(url, schema, jobs, slots)

    return compare(console, f"drain of {jobs:,} jobs, {slots:,} slots", of_floor, of_product, rounds)


def compare_enqueue(console: Console, url: str, schema: str, inserts: int, rounds: int) -> Comparison:
    """Insert jobs one by one, each with its notification, each committed."""

    def of_floor() -> Result:
        empty(url, schema)
        return floor_enqueue.insert_one_by_one(url, schema, inserts, notify=True)

    def of_product() -> Result:
        empty(url, schema)
        return product.insert_one_by_one(url, schema, inserts)

    return compare(console, f"insert of {inserts:,} jobs, one by one", of_floor, of_product, rounds)


def measure_documents(url: str, schema: str, jobs: int) -> Result:
    """Insert many rows at once: what a bulk insert could reach."""
    empty(url, schema)
    return floor_enqueue.insert_documents(url, schema, jobs)


def compare(console: Console, name: str, floor: Measure, product: Measure, rounds: int) -> Comparison:
    """Measure the two sides in turns, after one round that only warms them up."""
    floors: list[Result] = []
    products: list[Result] = []
    for number in range(rounds + 1):
        floors.append(floor())
        products.append(product())
        pair = f"floor {floors[-1].per_second:,.0f}/s, River {products[-1].per_second:,.0f}/s"
        console.print(f"{name}: {'warm-up' if number == 0 else number}: {pair}")
    return Comparison(name, floors[1:], products[1:])


def table_of(comparisons: list[Comparison]) -> Table:
    """Medians, for people."""
    table = Table("what", "floor, jobs/s", "River, jobs/s", "ratio", title="River against raw psycopg")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in comparisons:
        rates = f"{each.floor_per_second:,.0f}", f"{each.product_per_second:,.0f}"
        table.add_row(each.name, *rates, f"{each.ratio:.2f}")
    return table


def summary(comparison: Comparison) -> dict[str, object]:
    """Medians and every run, for machines."""
    return {
        "name": comparison.name,
        "floor_per_second": comparison.floor_per_second,
        "product_per_second": comparison.product_per_second,
        "ratio": comparison.ratio,
        "floor_runs_per_second": [result.per_second for result in comparison.floor],
        "product_runs_per_second": [result.per_second for result in comparison.product],
    }


if __name__ == "__main__":
    main()
