"""`mock`: a handler that answers without calling anybody, after a while, for trying things out."""

import hashlib

import msgspec

from runnel.authoring.context import Context
from runnel.core.json_types import Json
from runnel.handlers.loop_time import Waits

DELAY_S = (1.0, 2.0)
ABSENT = object()
OK = 200


class Mock(msgspec.Struct, frozen=True, kw_only=True):
    """`response` is ABSENT when the handler has to think of one itself."""

    delay_s: tuple[float, float] = DELAY_S
    statuses: tuple[int, ...] = (OK,)
    response: Json = ABSENT

    async def wait(self, ctx: Context, clock: Waits) -> int:
        """Takes its time and returns the status of this attempt; the last one goes on for ever."""
        least, most = self.delay_s
        await clock.sleep(least + (most - least) * _fraction(ctx))
        return self.statuses[min(ctx.attempt, len(self.statuses)) - 1]


def mock_of(config: Json) -> Mock | None:
    """Of a config that was checked; None when the handler is to do its real work."""
    found = config.get("mock", False)
    if found is False:
        return None
    given = {} if found is True else found
    delay, status = given.get("delay", list(DELAY_S)), given.get("status", OK)
    least, most = delay if isinstance(delay, list) else (delay, delay)
    return Mock(
        delay_s=(float(least), float(most)),
        statuses=tuple(status) if isinstance(status, list) else (status,),
        response=given.get("response", ABSENT),
    )


def _fraction(ctx: Context) -> float:
    """In [0, 1), different for each task and the same whenever it is asked for."""
    digest = hashlib.blake2b(f"{ctx.idempotency_key}/{ctx.attempt}".encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big") / 2**48
