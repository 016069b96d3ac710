"""Bodies of requests: JSON as strict as that of workflow files, and workflows in YAML too."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from runnel.authoring.files import parse_data
from runnel.authoring.json_text import parse_json
from runnel.core.json_types import Json
from runnel.errors import InvalidWorkflowError, MalformedBodyError

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")


class StrictRequest(Request):
    async def json(self) -> Any:
        """Raises MalformedBodyError: for NaN, a key given twice, too much nesting, too."""
        return parsed(await self.body())


class StrictRoute(APIRoute):
    """Every route has it, so that no body is read otherwise."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def parsed(body: bytes) -> Json:
    text = _text(body)
    try:
        return parse_json(text, source="the body")
    except InvalidWorkflowError as error:
        raise _malformed(error) from error


def document(body: bytes, media_type: str) -> Json:
    """A workflow as it was written, before it is judged."""
    suffix = ".yaml" if media_type in YAML_TYPES else ".json"
    try:
        return parse_data(_text(body), source="the body", suffix=suffix)
    except InvalidWorkflowError as error:
        raise _malformed(error) from error


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBodyError(
            f"the body is not UTF-8 text, from byte {error.start} on"
        ) from error


def _malformed(error: InvalidWorkflowError) -> MalformedBodyError:
    return MalformedBodyError(f"the body: {error.problems[0]}")
