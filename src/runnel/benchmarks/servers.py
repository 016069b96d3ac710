"""The two servers that a measurement uses: private ones, or a corner of those that are named."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from runnel.runtime.servers import PostgresServer, RedisServer
from runnel.runtime.servers.guardian import children_of
from runnel.runtime.servers.private_server import PrivateServer

PREFIX = "runnel-bench-"


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the prefix of all keys and the schema of all tables: nobody else's.

    The private ones are there when they were started for this.
    """

    redis_url: str
    postgres_url: str | None
    name: str
    redis: RedisServer | None = None
    postgres: PostgresServer | None = None

    @property
    def is_private(self) -> bool:
        return self.redis is not None

    def pids(self) -> dict[str, list[int]]:
        return {
            kind: [server.pid, *children_of(server.pid)]
            for kind, server in (("redis", self.redis), ("postgres", self.postgres))
            if server is not None and server.pid is not None
        }


@contextmanager
def servers(
    redis_url: str | None = None, postgres_url: str | None = None, *, nonce: str
) -> Iterator[Servers]:
    """As they are run in earnest: on disk, Redis with an fsync every second, PostgreSQL with one
    for each transaction.
    """
    name = f"{PREFIX}{nonce}"
    if redis_url is not None:
        yield Servers(redis_url=redis_url, postgres_url=postgres_url, name=name)
        return
    with ExitStack() as stack:
        redis = RedisServer(storage="disk")
        postgres = PostgresServer(storage="disk", fsync=True)
        for each in (redis, postgres):
            _open(stack, each)
        yield Servers(
            redis_url=redis.url,
            postgres_url=postgres.url,
            name=name,
            redis=redis,
            postgres=postgres,
        )


def _open(stack: ExitStack, server: PrivateServer) -> None:
    stack.enter_context(server)
