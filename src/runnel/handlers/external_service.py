"""`call_external_service`, also named `external_service`: one HTTP request.

Its output is an object of `status`, `headers` and `body`; docs/handlers.md lists the settings.
"""

from collections.abc import Mapping

from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.authoring.context import Context
from runnel.core.json_types import Json
from runnel.handlers.http.body import content_of
from runnel.handlers.http.statuses import OK, RETRIED, Verdicts, status_error
from runnel.handlers.http.wanted import shown_url, wanted_of
from runnel.handlers.http.web import Web
from runnel.handlers.loop_time import Waits
from runnel.handlers.means import check_config
from runnel.handlers.mocking import ABSENT, Mock, mock_of

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
