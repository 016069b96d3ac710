"""The server that all Redis tests of a process share: each empties it before it begins."""

from runnel.runtime.servers import RedisServer, redis_wire


def empty(server: RedisServer) -> None:
    password = server.url.split("@")[0].rpartition(":")[2]
    if redis_wire.ask(server.port, password, "FLUSHALL") != "OK":
        raise AssertionError("the server was not emptied")
