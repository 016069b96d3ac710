"""`llm_service`: a chat completion of any service that speaks OpenAI's API.

Its output is an object of `text`, `message`, `finish_reason`, `model` and `usage`, and of `json`
where the response_format asks for it; docs/handlers.md lists the settings.
"""

from collections.abc import Mapping
from contextlib import aclosing

import msgspec

from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.authoring.context import Context
from runnel.core.json_types import Json
from runnel.errors import ServiceBusyError, ServiceRefusedError
from runnel.handlers.http.body import content_of
from runnel.handlers.http.statuses import Verdicts, status_error
from runnel.handlers.http.wanted import Wanted
from runnel.handlers.http.web import Web
from runnel.handlers.llm.answers import NO_CREDIT, output_of
from runnel.handlers.llm.asking import messages_of, wanted_of, wants_json
from runnel.handlers.llm.stream import Pieces, lines_of
from runnel.handlers.means import Means, check_config
from runnel.handlers.mocking import ABSENT, Mock, mock_of
from runnel.handlers.shortening import short

NAME = "llm_service"
SPENT = "llm_tokens"
CHARS_PER_TOKEN = 4
MOCK_CHARS = 200


class LlmService:
    def __init__(self, means: Means, web: Web) -> None:
        self._means = means
        self._web = web

    def plan(self, config: Json) -> Call:
        """Raises InputError with every problem of the config."""
        check_config(NAME, config)
        return Call(
            function=self._ask,
            mode=Mode.LOOP,
            positional=(config,),
            place=ContextPlace.LAST,
            knows_secrets=self._means.llm_api_key is not None,
        )

    async def _ask(self, config: Mapping[str, Json], ctx: Context) -> Json:
        mock = mock_of(config)
        if mock is None:
            wanted = wanted_of(config, self._means, idempotency_key=ctx.idempotency_key)
            completion, where = await self._completion(wanted, is_stream=_streams(config))
        else:
            where = "the mock"
            completion = await self._made_up(config, mock, ctx)
        output = output_of(completion, where=where, wants_json=wants_json(config))
        model = str(output["model"] or config.get("model", "mock"))
        for kind in ("prompt", "completion"):
            ctx.metrics.count(SPENT, output["usage"][f"{kind}_tokens"], kind=kind, model=model)
        return output

    async def _completion(self, wanted: Wanted, *, is_stream: bool) -> tuple[Json, str]:
        limit = wanted.limits.bytes_max
        try:
            async with self._web.open(wanted) as opened:
                head = opened.head
                if is_stream and "text/event-stream" in head.headers.get("content-type", ""):
                    async with aclosing(lines_of(opened.chunks(limit), where=head.where)) as lines:
                        return await Pieces(head.where).collect(lines), head.where
                data = await opened.read(limit)
        except ServiceBusyError as error:
            if NO_CREDIT in str(error):
                raise ServiceRefusedError(str(error), status=error.status) from error
            raise
        return content_of(data, head.headers, kind="json", where=head.where), head.where

    async def _made_up(self, config: Mapping[str, Json], mock: Mock, ctx: Context) -> Json:
        status = await mock.wait(ctx, self._means.clock)
        if not Verdicts().is_ok(status):
            raise status_error(Verdicts(), "the mock", status, said="", retry_after_s=None)
        asked = str(messages_of(config)[-1].get("content", ""))
        text = _mock_text(asked, mock.response)
        tokens = {"prompt_tokens": _tokens(asked), "completion_tokens": _tokens(text)}
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return {"choices": [choice], "model": config.get("model", "mock"), "usage": tokens}


def _streams(config: Mapping[str, Json]) -> bool:
    return config.get("stream", False) is True


def _mock_text(asked: str, response: Json) -> str:
    if response is ABSENT:
        return f"This is a mock completion of: {short(asked, MOCK_CHARS)}"
    return response if isinstance(response, str) else msgspec.json.encode(response).decode()


def _tokens(text: str) -> int:
    """About as many as a model would count."""
    return -(-len(text) // CHARS_PER_TOKEN)
