"""A request that must be refused: what is sent, and what is answered."""

from dataclasses import dataclass, field
from typing import Any

DEEP = "[" * 20_000 + "]" * 20_000
LONG = "x" * 600
HALF = "\\ud800"
OPEN_ID = "{open}"
"""Stands for the execution that waits, `{held}` for one that is held, `{done}` for a finished."""


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """`body` is sent as JSON, `raw` as it is; `says` is part of the detail."""

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
