"""Hooks for schemathesis, which loads them in its own process.

They change requests in three ways:

- Half of the valid requests name things that exist. Otherwise most answers would be 404.
- Waits are short.
- The token that the run itself uses is never revoked.
"""

import json
import os
from typing import Any

import schemathesis

KNOWN = "RUNNEL_TEST_KNOWN"
"""Name of a variable with JSON: the existing values of each path parameter.

The value of `token_id` is the token of the run itself.
"""
WAIT_S = 0.05
_WAITS = {"wait_for_execution": "timeout", "list_changes": "wait"}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    known = json.loads(os.environ[KNOWN])
    operation = case.operation.definition.raw["operationId"]
    if operation in _WAITS:
        _shorten_wait(case, _WAITS[operation])
    parameters = dict(case.path_parameters or {})
    if parameters.get("token_id") in known.pop("token_id"):
        parameters["token_id"] = "none"
    if case.meta is not None and case.meta.generation.mode.is_positive:
        parameters |= {name: _choose(value, known.get(name)) for name, value in parameters.items()}
    case.path_parameters = parameters


def _shorten_wait(case: Any, name: str) -> None:
    query = dict(case.query or {})
    given = query.get(name, WAIT_S)
    if isinstance(given, int | float) and not isinstance(given, bool) and given > WAIT_S:
        given = WAIT_S if given <= 60 else given
    case.query = {**query, name: given}


def _choose(value: Any, known: list[str] | None) -> Any:
    """Returns the same choice for the same value, so that a seed repeats a run."""
    digest = sum(str(value).encode())
    return value if not known or digest % 2 else known[digest // 2 % len(known)]
