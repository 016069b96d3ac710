"""What the keys of a crash point hold: what is settled, and what is left to do."""

from collections.abc import Iterator
from typing import Any

from redis import Redis

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.values import decode_header
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.states import EXECUTION_FINAL
from runnel.testing.crash_points.storage import Remains, settled_in

SCANNED_AT_ONCE = 1_000


def read_remains(client: Redis, keys: Keys) -> Remains:
    return Remains(
        settled=list(settled_in(_histories(client, keys))),
        left_over={name: count for name, count in _left_over(client, keys) if count},
        dead_letters=_length(client, keys.letters, "XLEN"),
    )


def found(client: Redis, prefix: str) -> list[bytes]:
    """All keys that begin so."""
    return list(client.scan_iter(match=f"{prefix}*", count=SCANNED_AT_ONCE))


def _histories(client: Redis, keys: Keys) -> Iterator[tuple[str, bytes]]:
    for key in sorted(found(client, keys.history)):
        for entry in _ask(client, "LRANGE", key, 0, -1):
            yield key.decode().removeprefix(keys.history), entry


def _left_over(client: Redis, keys: Keys) -> Iterator[tuple[str, int]]:
    headers = map(decode_header, _ask(client, "HVALS", keys.headers))
    yield "unfinished executions", sum(each.state not in EXECUTION_FINAL for each in headers)
    yield "histories of limits", len(found(client, keys.history + LIMIT_PREFIX))
    partitions = found(client, keys.partition)
    owned = [_ask(client, "HEXISTS", partition, "owner") for partition in partitions]
    yield "partitions with an owner", sum(owned)
    yield "unconsumed messages", _length(client, keys.inbox, "XLEN")
    yield "timers", _length(client, keys.timers, "ZCARD")
    yield "attempts of timers", _length(client, keys.attempts, "HLEN")
    yield "running executions", _length(client, keys.running, "ZCARD")
    yield "concurrency keys", _length(client, keys.limits, "SCARD")
    yield "queued tasks", _length(client, keys.tasks, "XLEN")
    yield "tasks that are out", _length(client, keys.out, "HLEN")
    yield "held tasks", _length(client, keys.held, "HLEN")
    yield "dropped tasks", _length(client, keys.dropped, "XLEN")
    yield "workers", _length(client, keys.workers, "HLEN")
    yield "descriptions of workers", _length(client, keys.about, "HLEN")
    yield "orchestrators", _length(client, keys.orchestrators, "HLEN")


def _length(client: Redis, key: str, command: str) -> int:
    """Of one key; of all that begin so, if it is a prefix."""
    names = found(client, key) if key.endswith(":") else [key]
    return sum(_ask(client, command, name) for name in names)


# Any: what Redis answers has the shape of the command.
def _ask(client: Redis, *command: bytes | str | int) -> Any:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's gap
