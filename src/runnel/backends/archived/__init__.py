"""A backend of two servers: Redis for what runs, PostgreSQL for what must last."""

from runnel.backends.archived.backend import ArchivedBackend

__all__ = ["ArchivedBackend"]
