"""What schemathesis is told about a server under test, in its own process.

Half of the good requests are about things that exist, so that more than "there is no such thing"
is seen; waits are short; the token that the run itself uses is never revoked.
"""

import json
import os
from typing import Any

import schemathesis

KNOWN = "RUNNEL_TEST_KNOWN"
"""JSON of path parameters by name, each with the values that exist; `token_id` is kept."""
WAIT_S = 0.05
_WAITS = {"wait_for_execution": "timeout", "list_changes": "wait"}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    known = json.loads(os.environ[KNOWN])
    operation = case.operation.definition.raw["operationId"]
    if operation in _WAITS:
        _shorten(case, _WAITS[operation])
    places = dict(case.path_parameters or {})
    if places.get("token_id") in known.pop("token_id"):
        places["token_id"] = "none"
    if case.meta is not None and case.meta.generation.mode.is_positive:
        places |= {name: _chosen(value, known.get(name)) for name, value in places.items()}
    case.path_parameters = places


def _shorten(case: Any, name: str) -> None:
    query = dict(case.query or {})
    given = query.get(name, WAIT_S)
    if isinstance(given, int | float) and not isinstance(given, bool) and given > WAIT_S:
        given = WAIT_S if given <= 60 else given
    case.query = {**query, name: given}


def _chosen(value: Any, known: list[str] | None) -> Any:
    """The same for the same value: a seed is enough to have a run again."""
    digest = sum(str(value).encode())
    return value if not known or digest % 2 else known[digest // 2 % len(known)]
