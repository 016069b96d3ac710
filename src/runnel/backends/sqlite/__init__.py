"""The embedded backend, which stores all data in one directory that the processes of one machine
share.
"""

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import Durability

__all__ = ["Durability", "SqliteBackend"]
