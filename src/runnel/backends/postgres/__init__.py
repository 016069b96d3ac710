"""The archive on a PostgreSQL server, which stores every commit durably and exactly once."""

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.database import PostgresDatabase
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.postgres.records import PostgresBlobs, PostgresRecords, PostgresRetention

__all__ = [
    "PostgresArchive",
    "PostgresBlobs",
    "PostgresDatabase",
    "PostgresLedger",
    "PostgresRecords",
    "PostgresRetention",
]
