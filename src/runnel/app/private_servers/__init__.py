"""Private servers: real ones, started as children of this process, gone when it is gone.

For tests, for benchmarks, and for users who want to try a server backend without installing one.
They are in `app`, not in `testing`, because the command line starts them too.
"""

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer

__all__ = ["PostgresServer", "RedisServer"]
