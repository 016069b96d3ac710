"""The embedded backend: one data directory, shared by the processes of one machine."""

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import Durability

__all__ = ["Durability", "SqliteBackend"]
