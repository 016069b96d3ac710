"""`mock`: lets a handler answer after a delay without calling a service, to try a workflow out."""

import hashlib

import msgspec

from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.handlers.environment import HandlerClock

MOCK_DELAY_S = (1.0, 2.0)
NO_RESPONSE = object()
MOCK_STATUS = 200


class MockService(msgspec.Struct, frozen=True, kw_only=True):
    """`response` is NO_RESPONSE when the handler has to make one up."""

    delay_s: tuple[float, float] = MOCK_DELAY_S
    statuses: tuple[int, ...] = (MOCK_STATUS,)
    response: Json = NO_RESPONSE

    async def wait_for_status(self, ctx: Context, clock: HandlerClock) -> int:
        """Waits, then returns the status of this attempt; later attempts get the last status."""
        least, most = self.delay_s
        await clock.sleep(least + (most - least) * _compute_delay_fraction(ctx))
        return self.statuses[min(ctx.attempt, len(self.statuses)) - 1]


def parse_mock(config: Json) -> MockService | None:
    """Reads a config that was checked; None when the handler is to do its real work."""
    mock = config.get("mock", False)
    if mock is False:
        return None
    settings = {} if mock is True else mock
    delay, status = settings.get("delay", list(MOCK_DELAY_S)), settings.get("status", MOCK_STATUS)
    least, most = delay if isinstance(delay, list) else (delay, delay)
    return MockService(
        delay_s=(float(least), float(most)),
        statuses=tuple(status) if isinstance(status, list) else (status,),
        response=settings.get("response", NO_RESPONSE),
    )


def _compute_delay_fraction(ctx: Context) -> float:
    """In [0, 1), different for each task and the same whenever it is computed."""
    digest = hashlib.blake2b(f"{ctx.idempotency_key}/{ctx.attempt}".encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big") / 2**48
