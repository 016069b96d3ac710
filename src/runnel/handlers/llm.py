"""`llm_service`: a chat completion of any service that speaks OpenAI's API.

Its output is an object of `text`, `message`, `finish_reason`, `model` and `usage`, and of `json`
where the response_format asks for it; docs/handlers.md lists the settings.
"""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.errors import ServiceBusyError, ServiceError, ServiceRefusedError
from runnel.handlers.external_service import ABSENT, Mock, mock_of
from runnel.handlers.http import Web
from runnel.handlers.http.request import Verdicts, Wanted, in_header, limits_of, status_error
from runnel.handlers.http.response_body import content_of
from runnel.handlers.llm_stream import Pieces, lines_of
from runnel.handlers.permissions import Means, check_config, short

# A completion as a node's output, whether it came in one piece or as a stream.

TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
COUNT_MAX = 10**12
CHARS = 500
# Of a bill that is not paid: the status is that of a busy service, but no waiting helps.
NO_CREDIT = "insufficient_quota"


def output_of(completion: Json, *, where: str, wants_json: bool) -> dict[str, Json]:
    """Raises ServiceError for an answer that is no completion: the next one may be."""
    choice = _first(completion, where)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _not_one(where, "its first choice has no message")
    text = message.get("content")
    if text is not None and not isinstance(text, str):
        raise _not_one(where, "the content of its message is no text")
    output: dict[str, Json] = {
        "text": text or "",
        "message": message,
        "finish_reason": choice.get("finish_reason"),
        "model": completion.get("model"),
        "usage": usage_of(completion.get("usage")),
    }
    if wants_json:
        output["json"] = _json(text or "", where)
    return output


def usage_of(found: Json) -> dict[str, int]:
    """The three counts, 0 for what the service did not say, or said in a way that is no count."""
    said: Mapping[str, Any] = found if isinstance(found, dict) else {}
    counts = {name: _count(said.get(name)) for name in TOKENS}
    if not counts["total_tokens"]:
        counts["total_tokens"] = counts["prompt_tokens"] + counts["completion_tokens"]
    return counts


def _first(completion: Json, where: str) -> dict[str, Json]:
    said: Mapping[str, Json] = completion if isinstance(completion, dict) else {}
    choices = said.get("choices")
    if "error" in said and not choices:
        raise _error(said["error"], where)
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _not_one(where, "it has no choices")
    first: dict[str, Json] = choices[0]
    return first


def _error(error: Json, where: str) -> ServiceError:
    """Some services say that they have failed with the status of success."""
    text = short(error if isinstance(error, str) else msgspec.json.encode(error).decode(), CHARS)
    kind = ServiceRefusedError if NO_CREDIT in text else ServiceError
    return kind(f"{where} answered with an error: {text}")


def _count(value: Json) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX
    return value if is_count else 0


def _json(text: str, where: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServiceError(f"{where} was asked for JSON and wrote what is none: {error}") from error


def _not_one(where: str, why: str) -> ServiceError:
    return ServiceError(f"{where} answered what is no chat completion: {why}")


# A chat completion as a config describes it: what is sent, where, and with which key.

# Models take their time; the node's own timeout_seconds is 300 unless it says otherwise.
TIMEOUT_S = 120.0
PATH = "/chat/completions"
PASSED_ON = ("model", "temperature", "max_tokens", "response_format")
# Kept beside the service's: an answer to a prompt may come with it.
REDIRECTS = 0


def wanted_of(config: Mapping[str, Json], means: Means, *, idempotency_key: str) -> Wanted:
    """Of a config that was checked.

    The operator's key goes to the operator's address only: with a base_url of its own, a config
    has to bring a key of its own.
    """
    base = config.get("base_url", means.llm_url)
    key = config.get("api_key", means.llm_api_key if "base_url" not in config else None)
    given = {name.lower(): str(value) for name, value in config.get("headers", {}).items()}
    headers = {"content-type": "application/json", "idempotency-key": in_header(idempotency_key)}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    limits = limits_of(config, total_s=TIMEOUT_S)
    return Wanted(
        method="POST",
        url=base.rstrip("/") + PATH,
        headers={**headers, **given},
        content=msgspec.json.encode(_request(config)),
        limits=msgspec.structs.replace(limits, redirects=REDIRECTS),
        kind="json",
    )


def messages_of(config: Mapping[str, Json]) -> list[Json]:
    if "messages" in config:
        return list(config["messages"])
    system = [{"role": "system", "content": config["system"]}] if "system" in config else []
    return [*system, {"role": "user", "content": config["prompt"]}]


def wants_json(config: Mapping[str, Json]) -> bool:
    kind = config.get("response_format", {}).get("type")
    return kind in {"json_object", "json_schema"}


def _request(config: Mapping[str, Json]) -> Json:
    request = {name: config[name] for name in PASSED_ON if name in config}
    request["messages"] = messages_of(config)
    if config.get("stream", False):
        request["stream"] = True
        request["stream_options"] = {"include_usage": True}
    return {**request, **config.get("extra", {})}


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
