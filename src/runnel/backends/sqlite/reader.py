"""The reading connection: it sees what is committed, and never waits for a writer.

Reads run on the event loop's thread: a look-up by key takes a few microseconds.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runnel.backends.sqlite.database import Durability, connect, describe, translated
from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.rows import Column


class Reader:
    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        with translated(path):
            self._db = connect(path, durability)
            try:
                self._db.execute("PRAGMA query_only = ON")
            except BaseException:
                self._db.close()
                raise

    def rows(
        self, name: str, values: Sequence[Column] | Mapping[str, Column] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows at once: an open cursor would hold a snapshot, and the log could not end."""
        try:
            return self._db.execute(SQL[name], values).fetchall()
        except sqlite3.Error as error:
            raise describe(self._path, error) from error

    def close(self) -> None:
        self._db.close()
