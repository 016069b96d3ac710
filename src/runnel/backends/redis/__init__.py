"""A backend that stores all data on one Redis or Valkey server, for any number of orchestrators and
workers.
"""

from runnel.backends.redis.backend import RedisBackend

__all__ = ["RedisBackend"]
