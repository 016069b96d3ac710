"""A backend of two servers: Redis holds running executions, PostgreSQL archives all executions."""

from runnel.backends.redis_postgres.backend import RedisPostgresBackend

__all__ = ["RedisPostgresBackend"]
