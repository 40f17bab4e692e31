"""One way to talk to SQLite and PostgreSQL: short reads, and writes that never deadlock or lose an answer."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DatabaseError

from onelabel.review.migrations import migrate
from onelabel.system import one_line


def database_url(db: str | os.PathLike[str]) -> URL:
    """The SQLAlchemy URL of a path or URL; PostgreSQL is reached with psycopg."""
    given = os.fspath(db)
    if "://" not in given:
        return URL.create("sqlite", database=os.path.abspath(os.path.expanduser(given)))
    url = make_url(given)
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ValueError(f"db must be a file, sqlite:/// or postgresql://, got {url.render_as_string()}")
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    return url


class Database:
    """An engine with its pragmas, migrated on opening.

    SQLite has one writer: a lock of ours hands it over at once, where SQLite's own waiting sleeps and retries.
    """

    def __init__(self, db: str | os.PathLike[str], *, create: bool = True) -> None:
        self.url = database_url(db)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        path = self.url.database
        if self.is_sqlite and not create and not (path and os.path.isfile(path)):
            raise FileNotFoundError(f"db must be a review database; there is no {path}")
        options: dict[str, Any] = {} if self.is_sqlite else {"pool_size": 10, "max_overflow": 30}
        self.engine: Engine = create_engine(self.url, pool_pre_ping=not self.is_sqlite, **options)
        self._writer = threading.Lock()
        if self.is_sqlite:
            event.listen(self.engine, "connect", _pragmas)
            event.listen(self.engine, "begin", _begin)
        try:
            with self.write() as connection:
                migrate(connection)
        except DatabaseError as error:
            self.close()
            raise self.refusal(error) from error

    def refusal(self, error: DatabaseError) -> ValueError:
        """One line about a database that cannot be read."""
        told, where = one_line(error.orig or error), self.url.render_as_string(hide_password=True)
        return ValueError(f"{where}: cannot be opened as a review database ({told})")

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that changes nothing."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, rolled back on an error."""
        with self._writer if self.is_sqlite else contextlib.nullcontext(), self.engine.connect() as raw:
            connection = raw.execution_options(writes=True)
            with connection.begin():
                yield connection

    def insert(self, table: Any) -> Any:
        """An INSERT that knows ON CONFLICT, which both databases spell alike."""
        make = sqlite.insert if self.is_sqlite else postgresql.insert
        target: Table = getattr(table, "__table__", table)
        return make(target)

    def close(self) -> None:
        self.engine.dispose()


_PRAGMAS = ("busy_timeout=20000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-65536")


def _pragmas(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are ours: `_begin`
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    # IMMEDIATE: a read that turns into a write could find the file changed under it.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
