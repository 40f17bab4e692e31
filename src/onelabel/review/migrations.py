"""Versions of the tables: an empty database gets the newest, an older one is brought up step by step."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable

from sqlalchemy import Connection, text

from onelabel.review.models import Base

#: From version i+1 to i+2. A step, once released, is never edited; each names its own columns, not today's models.
UPGRADES: tuple[tuple[str, Callable[[Connection], None]], ...] = ()


def migrate(connection: Connection) -> None:
    """Bring the tables to the newest version, inside the caller's transaction."""
    newest = 1 + len(UPGRADES)
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(6076541)"))  # two servers may start at once
    connection.execute(
        text("CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at REAL NOT NULL)")
    )
    version = connection.execute(text("SELECT coalesce(max(version), 0) FROM migration")).scalar_one()
    if version > newest:
        raise ValueError(f"db has version {version}, this program knows {newest}; upgrade onelabel")
    if version == 0:
        Base.metadata.create_all(connection)
        instance = {"value": json.dumps(secrets.token_hex(4))}
        connection.execute(text("INSERT INTO meta (key, value) VALUES ('instance', :value)"), instance)
        _stamp(connection, newest, "created")
        return
    for number, (name, step) in enumerate(UPGRADES[version - 1 :], start=version + 1):
        step(connection)
        _stamp(connection, number, name)


def _stamp(connection: Connection, version: int, name: str) -> None:
    values = {"version": version, "name": name, "at": time.time()}
    connection.execute(text("INSERT INTO migration (version, name, at) VALUES (:version, :name, :at)"), values)
