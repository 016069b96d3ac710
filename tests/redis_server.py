"""The server that all Redis tests of a process share: each empties it before it begins."""

from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.redis import RedisServer


def password_of(server: RedisServer) -> str:
    return server.url.split("@")[0].rpartition(":")[2]


def empty(server: RedisServer) -> None:
    if redis_wire.ask(server.port, password_of(server), "FLUSHALL") != "OK":
        raise AssertionError("the server was not emptied")
