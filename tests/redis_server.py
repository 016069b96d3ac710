"""The Redis server that all tests of a process share; each test empties it first."""

from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.redis import RedisServer


def get_password(server: RedisServer) -> str:
    return server.url.split("@")[0].rpartition(":")[2]


def flush_server(server: RedisServer) -> None:
    if redis_wire.send_command(server.port, get_password(server), "FLUSHALL") != "OK":
        raise AssertionError("the server was not emptied")
