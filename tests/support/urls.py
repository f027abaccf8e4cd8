"""One database, spelt for each library: Unix sockets and session settings have a different name in each.

A test's URL is libpq's: ``postgresql://user:@/database?host=/socket/folder&options=-csearch_path%3D``.
"""

from typing import Any

from sqlalchemy import URL, event, make_url
from sqlalchemy.dialects.postgresql.pg8000 import PGDialect_pg8000

DRIVERS = ("postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg", "postgresql+pg8000")

DEFAULT_PORT = "5432"


def with_empty_search_path(url: str) -> str:
    """The libpq URL of sessions that find no table by its bare name."""
    parsed = make_url(url)
    options = [str(parsed.query["options"])] if "options" in parsed.query else []
    parsed = parsed.update_query_dict({"options": " ".join([*options, "-csearch_path="])})
    return _libpq(parsed)


def _libpq(url: URL) -> str:
    """SQLAlchemy writes a space of a query as a plus sign, which libpq takes literally."""
    place, _, query = url.render_as_string(hide_password=False).partition("?")
    return f"{place}?{query.replace('+', '%20')}"


def with_driver(url: str, drivername: str) -> URL:
    """The SQLAlchemy URL of the same database and session settings, for one of DRIVERS."""
    parsed = make_url(url).set(drivername=drivername)
    match drivername:
        case "postgresql+psycopg" | "postgresql+psycopg2":
            return parsed
        case "postgresql+asyncpg":
            return _for_asyncpg(parsed)
        case "postgresql+pg8000":
            return _for_pg8000(parsed)
        case _:
            raise ValueError(f"no spelling for {drivername!r}; known: {', '.join(DRIVERS)}")


def _for_asyncpg(url: URL) -> URL:
    """What is no keyword of ``asyncpg.connect`` goes into a DSN, which asyncpg reads as libpq does."""
    place = {key: value for key, value in url.query.items() if key in {"host", "port"}}
    rest = {key: value for key, value in url.query.items() if key not in place}
    dsn = _libpq(URL.create("postgresql", query=rest))
    return url.set(query={**place, "dsn": dsn})


def _for_pg8000(url: URL) -> URL:
    """A socket is named by its file; the options stay in the URL for `_startup_options`."""
    query = dict(url.query)
    port = str(query.pop("port", url.port or DEFAULT_PORT))
    host = str(query.pop("host", ""))
    if host.startswith("/"):
        return url.set(query={**query, "unix_sock": f"{host}/.s.PGSQL.{port}"})
    return url.set(host=host or url.host, port=int(port), query=query)


@event.listens_for(PGDialect_pg8000, "do_connect")
def _startup_options(_dialect: Any, _record: Any, _args: Any, parameters: dict[str, Any]) -> None:
    """Turn libpq's options into pg8000's, which are a dict and so cannot be part of a URL."""
    options = parameters.pop("options", None)
    if options is not None:
        parameters["startup_params"] = {"options": options}
