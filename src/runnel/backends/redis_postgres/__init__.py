"""A backend of two servers: Redis runs the executions, PostgreSQL archives them."""

from runnel.backends.redis_postgres.backend import RedisPostgresBackend

__all__ = ["RedisPostgresBackend"]
