"""Private servers: real Redis and PostgreSQL servers that this process starts and stops.

For tests, benchmarks, and users who want to try a server backend without installing one. They end
with this process. The package is in `app`, not in `testing`, because the command line uses it too.
"""

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer

__all__ = ["PostgresServer", "RedisServer"]
