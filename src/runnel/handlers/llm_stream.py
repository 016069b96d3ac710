"""A completion that comes in pieces (server-sent events), put together again."""

from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from runnel.core.values import Json
from runnel.core.wording import shorten
from runnel.errors import ServiceError

DONE_MARKER = "[DONE]"
# Calls of tools come in pieces too; more of them than this are an attack on our memory.
TOOL_CALLS_MAX = 128
ERROR_CHARS_MAX = 200


class CompletionAssembler:
    """`completion` is as if it had come in one piece."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Json]] = {}
        self._role = "assistant"
        self._model: Json = None
        self._usage: Json = None
        self._finish_reason: Json = None
        self._is_done = False

    async def collect(self, lines: AsyncIterator[str]) -> Json:
        """Raises ServiceError when the stream ends before the completion does."""
        async for line in lines:
            name, _, data = line.partition(":")
            if name == "data" and not self._add(data.strip()):
                break
        if not self._is_done and self._finish_reason is None:
            raise ServiceError(f"{self._where} broke off in the middle of its answer")
        return self._build_completion()

    def _add(self, data: str) -> bool:
        """False at the end."""
        if data == DONE_MARKER:
            self._is_done = True
            return False
        try:
            piece = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ServiceError(f"{self._where} sent a piece that is no JSON: {error}") from error
        if not isinstance(piece, dict):
            raise ServiceError(f"{self._where} sent a piece that is no object")
        if "error" in piece:
            raise ServiceError(
                f"{self._where} broke off: {shorten(str(piece['error']), ERROR_CHARS_MAX)}"
            )
        self._model = piece.get("model") or self._model
        self._usage = piece.get("usage") or self._usage
        choices = piece.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._add_choice(choices[0])
        return True

    def _add_choice(self, choice: dict[str, Json]) -> None:
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        if isinstance(delta.get("content"), str):
            self._texts.append(delta["content"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._add_call(call)

    def _add_call(self, piece: dict[str, Json]) -> None:
        """A name comes once, arguments as text that goes on."""
        index = piece.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < TOOL_CALLS_MAX:
            raise ServiceError(f"{self._where} sent a call of a tool without a place")
        call = self._calls.setdefault(
            index, {"id": "", "type": "function", "function": {"name": [], "arguments": []}}
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function")
        if isinstance(function, dict):
            for name, texts in call["function"].items():
                texts.append(str(function.get(name) or ""))

    def _build_completion(self) -> Json:
        message: dict[str, Json] = {"role": self._role, "content": "".join(self._texts)}
        if self._calls:
            message["tool_calls"] = [
                _join_tool_call(self._calls[index]) for index in sorted(self._calls)
            ]
        choice = {"message": message, "finish_reason": self._finish_reason}
        return {"choices": [choice], "model": self._model, "usage": self._usage}


def _join_tool_call(call: dict[str, Json]) -> Json:
    """Its texts are joined once: adding piece by piece would take the square of their size."""
    function = {name: "".join(texts) for name, texts in call["function"].items()}
    return {**call, "function": function}


async def iterate_lines(chunks: AsyncIterator[bytes], *, where: str) -> AsyncGenerator[str, None]:
    """Raises ServiceError for what is no text."""
    line: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        line.append(first)
        for other in others:  # each one ends the line before it
            yield _decode_line(b"".join(line), where)
            line = [other]
    if any(line):
        yield _decode_line(b"".join(line), where)


def _decode_line(data: bytes, where: str) -> str:
    try:
        return data.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise ServiceError(f"{where} answered what is no text: {error}") from error
