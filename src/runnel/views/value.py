"""Views of values that are too large to be part of another view, and bounded texts of views."""

import reprlib
from typing import Annotated
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId

# The most characters of a preview. The command line shows at most 120 characters of a value in a
# list.
PREVIEW_CHARS_MAX = 200


class ValuePreview(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a value that is too large for the view that names it."""

    size: Annotated[int, Meta(description="The size of the whole value: bytes of JSON")]
    text: Annotated[
        str, Meta(description="The beginning of the JSON of the value, 200 characters at most")
    ]
    url: Annotated[str, Meta(description="The path and query of the request for the whole value")]


def make_preview(head: bytes, size: int, url: str) -> ValuePreview:
    """Makes the preview of a value; `head` is the beginning of its JSON.

    The head may end within a character, which is left out.
    """
    text = head.decode(errors="ignore")[:PREVIEW_CHARS_MAX]
    return ValuePreview(size=size, text=text, url=url)


def build_input_url(execution_id: ExecutionId) -> str:
    """Returns the path of the whole input of an execution."""
    return f"/v1/executions/{quote(execution_id, safe='')}/input"


def build_output_url(
    execution_id: ExecutionId, node_id: str | None = None, item: int | None = None
) -> str:
    """Returns the path and query of the whole output of an execution, of a node or of an item."""
    path = f"/v1/executions/{quote(execution_id, safe='')}/output"
    return path + build_output_query(node_id, item)


def build_output_query(node_id: str | None, item: int | None) -> str:
    """Returns the query of a node's or item's output with its question mark, or an empty text."""
    query = [] if node_id is None else [("node", node_id)]
    query += [] if item is None else [("item", str(item))]
    return "?" + urlencode(query, errors="replace") if query else ""


class BoundedRepr(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of views with values of users; their `repr` shortens these values.

    `asyncio.run` makes the `repr` of its result twice: it reads the handler of SIGINT, which refers
    to the task, and the module `signal` puts its `repr` into an error that it drops.
    """

    def __repr__(self) -> str:
        fields = [f"{name}={reprlib.repr(getattr(self, name))}" for name in self.__struct_fields__]
        return f"{type(self).__name__}({', '.join(fields)})"
