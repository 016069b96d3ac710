"""`call_external_service`, also named `external_service`: one HTTP request.

Its output is an object of `status`, `headers` and `body`; docs/handlers.md lists the settings.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.handlers.http import Web
from runnel.handlers.http.request import OK, RETRIED, Verdicts, shown_url, status_error, wanted_of
from runnel.handlers.http.response_body import content_of
from runnel.handlers.permissions import Waits, check_config

# `mock`: a handler that answers without calling anybody, after a while, for trying things out.

DELAY_S = (1.0, 2.0)
ABSENT = object()
MOCK_STATUS = 200


class Mock(msgspec.Struct, frozen=True, kw_only=True):
    """`response` is ABSENT when the handler has to think of one itself."""

    delay_s: tuple[float, float] = DELAY_S
    statuses: tuple[int, ...] = (MOCK_STATUS,)
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
    delay, status = given.get("delay", list(DELAY_S)), given.get("status", MOCK_STATUS)
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


# A session of somebody else's does not belong into a history.
UNTOLD = frozenset({"set-cookie", "set-cookie2"})


class ExternalService:
    def __init__(self, name: str, web: Web, clock: Waits) -> None:
        self._name = name
        self._web = web
        self._clock = clock

    def plan(self, config: Json) -> Call:
        """Raises InputError with every problem of the config."""
        check_config(self._name, config)
        return Call(
            function=self._call, mode=Mode.LOOP, positional=(config,), place=ContextPlace.LAST
        )

    async def _call(self, config: Mapping[str, Json], ctx: Context) -> Json:
        mock = mock_of(config)
        if mock is not None:
            return await self._pretend(config, mock, ctx)
        wanted = wanted_of(config, idempotency_key=ctx.idempotency_key)
        async with self._web.open(wanted) as opened:
            head = opened.head
            data = await opened.read(wanted.limits.bytes_max)
        body = content_of(data, head.headers, kind=wanted.kind, where=head.where)
        told = {name: value for name, value in head.headers.items() if name not in UNTOLD}
        return {"status": head.status, "headers": told, "body": body}

    async def _pretend(self, config: Mapping[str, Json], mock: Mock, ctx: Context) -> Json:
        status = await mock.wait(ctx, self._clock)
        url = config.get("url", "https://mock")
        verdicts = Verdicts(
            ok=config.get("ok_statuses", OK), retried=config.get("retry_statuses", RETRIED)
        )
        if not verdicts.is_ok(status):
            where = f"the mock of {shown_url(url)}"
            raise status_error(verdicts, where, status, said="", retry_after_s=None)
        made_up = {"mock": True, "method": config.get("method", "GET"), "url": url}
        body = made_up if mock.response is ABSENT else mock.response
        return {"status": status, "headers": {}, "body": body}
