"""`call_external_service`, also named `external_service`: one HTTP request.

Its output is an object of `status`, `headers` and `body`; docs/handlers.md lists the settings.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from runnel.authoring.calls import ContextPlace, FunctionCall, Mode
from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.handlers.http import OutboundHttpClient
from runnel.handlers.http.request import (
    OK_STATUSES,
    RETRIED_STATUSES,
    StatusPolicy,
    build_http_request,
    build_status_error,
    format_url,
)
from runnel.handlers.http.response_body import decode_body
from runnel.handlers.permissions import HandlerClock, check_config

# `mock`: a handler that answers without calling anybody, after a while, for trying things out.

MOCK_DELAY_S = (1.0, 2.0)
NO_RESPONSE = object()
MOCK_STATUS = 200


class MockService(msgspec.Struct, frozen=True, kw_only=True):
    """`response` is ABSENT when the handler has to think of one itself."""

    delay_s: tuple[float, float] = MOCK_DELAY_S
    statuses: tuple[int, ...] = (MOCK_STATUS,)
    response: Json = NO_RESPONSE

    async def wait_for_status(self, ctx: Context, clock: HandlerClock) -> int:
        """Takes its time and returns the status of this attempt; the last one goes on for ever."""
        least, most = self.delay_s
        await clock.sleep(least + (most - least) * _compute_delay_fraction(ctx))
        return self.statuses[min(ctx.attempt, len(self.statuses)) - 1]


def parse_mock(config: Json) -> MockService | None:
    """Of a config that was checked; None when the handler is to do its real work."""
    found = config.get("mock", False)
    if found is False:
        return None
    given = {} if found is True else found
    delay, status = given.get("delay", list(MOCK_DELAY_S)), given.get("status", MOCK_STATUS)
    least, most = delay if isinstance(delay, list) else (delay, delay)
    return MockService(
        delay_s=(float(least), float(most)),
        statuses=tuple(status) if isinstance(status, list) else (status,),
        response=given.get("response", NO_RESPONSE),
    )


def _compute_delay_fraction(ctx: Context) -> float:
    """In [0, 1), different for each task and the same whenever it is asked for."""
    digest = hashlib.blake2b(f"{ctx.idempotency_key}/{ctx.attempt}".encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big") / 2**48


# A session of somebody else's does not belong into a history.
HIDDEN_HEADERS = frozenset({"set-cookie", "set-cookie2"})


class ExternalService:
    def __init__(self, name: str, http_client: OutboundHttpClient, clock: HandlerClock) -> None:
        self._name = name
        self._http_client = http_client
        self._clock = clock

    def plan(self, config: Json) -> FunctionCall:
        """Raises InputError with every problem of the config."""
        check_config(self._name, config)
        return FunctionCall(
            function=self._call, mode=Mode.LOOP, positional=(config,), place=ContextPlace.LAST
        )

    async def _call(self, config: Mapping[str, Json], ctx: Context) -> Json:
        mock = parse_mock(config)
        if mock is not None:
            return await self._call_mock(config, mock, ctx)
        wanted = build_http_request(config, idempotency_key=ctx.idempotency_key)
        async with self._http_client.open(wanted) as opened:
            head = opened.head
            data = await opened.read(wanted.limits.bytes_max)
        body = decode_body(data, head.headers, kind=wanted.response_kind, where=head.where)
        told = {name: value for name, value in head.headers.items() if name not in HIDDEN_HEADERS}
        return {"status": head.status, "headers": told, "body": body}

    async def _call_mock(self, config: Mapping[str, Json], mock: MockService, ctx: Context) -> Json:
        status = await mock.wait_for_status(ctx, self._clock)
        url = config.get("url", "https://mock")
        verdicts = StatusPolicy(
            ok=config.get("ok_statuses", OK_STATUSES),
            retried=config.get("retry_statuses", RETRIED_STATUSES),
        )
        if not verdicts.is_ok(status):
            where = f"the mock of {format_url(url)}"
            raise build_status_error(verdicts, where, status, body="", retry_after_s=None)
        made_up = {"mock": True, "method": config.get("method", "GET"), "url": url}
        body = made_up if mock.response is NO_RESPONSE else mock.response
        return {"status": status, "headers": {}, "body": body}
