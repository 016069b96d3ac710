"""A backend of two servers: Redis for what runs, PostgreSQL for what must last."""

from runnel.backends.redis_postgres.backend import RedisPostgresBackend

__all__ = ["RedisPostgresBackend"]
