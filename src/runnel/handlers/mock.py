"""The setting `mock` of handlers: returns a made-up response after a delay, without a service."""

import hashlib

import msgspec

from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.handlers.environment import HandlerClock

MOCK_DELAY_S = (1.0, 2.0)
NO_RESPONSE = object()
MOCK_STATUS = 200


class MockService(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed `mock` setting.

    If `response` is NO_RESPONSE, the handler returns its default response. `statuses` has one HTTP
    status per attempt; attempts beyond the list get the last status.
    """

    delay_s: tuple[float, float] = MOCK_DELAY_S
    statuses: tuple[int, ...] = (MOCK_STATUS,)
    response: Json = NO_RESPONSE

    async def wait_for_status(self, ctx: Context, clock: HandlerClock) -> int:
        """Waits for the delay, then returns the status of this attempt."""
        shortest_s, longest_s = self.delay_s
        await clock.sleep(shortest_s + (longest_s - shortest_s) * _compute_delay_fraction(ctx))
        return self.statuses[min(ctx.attempt, len(self.statuses)) - 1]


def parse_mock(config: Json) -> MockService | None:
    """Parses the setting `mock` of a checked config; returns None if `mock` is off."""
    mock = config.get("mock", False)
    if mock is False:
        return None
    settings = {} if mock is True else mock
    delay, status = settings.get("delay", list(MOCK_DELAY_S)), settings.get("status", MOCK_STATUS)
    shortest_s, longest_s = delay if isinstance(delay, list) else (delay, delay)
    return MockService(
        delay_s=(float(shortest_s), float(longest_s)),
        statuses=tuple(status) if isinstance(status, list) else (status,),
        response=settings.get("response", NO_RESPONSE),
    )


def _compute_delay_fraction(ctx: Context) -> float:
    """Returns a number in [0, 1), which is the same whenever this attempt runs."""
    digest = hashlib.blake2b(f"{ctx.idempotency_key}/{ctx.attempt}".encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big") / 2**48
