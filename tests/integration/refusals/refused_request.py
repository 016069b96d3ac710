"""A request that the API must refuse, with the expected answer."""

from dataclasses import dataclass, field
from typing import Any

DEEP = "[" * 20_000 + "]" * 20_000
LONG = "x" * 600
HALF = "\\ud800"
OPEN_ID = "{open}"
"""A placeholder for a waiting execution; `{held}` is a held one and `{done}` a finished one."""


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """The test sends `body` as JSON or `raw` unchanged, and expects `says` in the detail."""

    name: str
    method: str = "POST"
    path: str
    status: int
    code: str
    says: str = ""
    body: Any = None
    raw: bytes | None = None
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    params: Any = None


def workflow(*nodes: Any, **more: Any) -> dict[str, Any]:
    return {"name": "refused", "nodes": list(nodes), **more}


def node(**more: Any) -> dict[str, Any]:
    return {"id": "a", "handler": "output", **more}


SUBMIT, STORE, RUN = "/v1/workflow", "/v1/workflows", "/v1/workflows/waiting/run"
TRIGGER = "/v1/workflow/trigger/"
INVALID, MALFORMED, REQUEST = "invalid_workflow", "malformed_body", "invalid_request"
