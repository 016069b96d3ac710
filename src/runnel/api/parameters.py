"""Parameters that several routes share."""

from typing import Annotated, TypeAlias

from fastapi import Header, Path, Query
from pydantic import BeforeValidator

from runnel.api.models.workflows import VERSION_MAX
from runnel.core.checks.values import NAME_CHARS_MAX
from runnel.idempotency import KEY_CHARS_MAX

LIMIT_MAX = 500

ExecutionIdPath: TypeAlias = Annotated[
    str, Path(alias="execution_id", description="An execution's whole id", max_length=500)
]
NamePath: TypeAlias = Annotated[
    str, Path(alias="name", description="The name of a workflow", max_length=NAME_CHARS_MAX)
]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at most")]
After: TypeAlias = Annotated[
    str | None, Query(description="`next` of the previous page", max_length=1_000)
]
Version: TypeAlias = Annotated[
    int | None, Query(ge=1, le=VERSION_MAX, description="By default the newest")
]


def _as_written(found: object) -> object:
    """Servers read headers as Latin-1: a key in another language comes as UTF-8."""
    if not isinstance(found, str):
        return found
    try:
        return found.encode("latin-1").decode()
    except UnicodeError:
        return found


IdempotencyKey: TypeAlias = Annotated[
    str | None,
    BeforeValidator(_as_written),
    Header(
        alias="Idempotency-Key",
        description="The same key is the same call: it is acted on once",
        min_length=1,
        max_length=KEY_CHARS_MAX,
    ),
]
