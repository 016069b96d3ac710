"""Ids of executions as callers give them."""

from runnel.core.checks.wording import printable
from runnel.errors import NotFoundError


def check_id(text: str) -> None:
    """Half a surrogate pair (an argument that is not UTF-8) is in no id, and no store takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise no_execution(text) from None


def no_execution(name: str) -> NotFoundError:
    return NotFoundError("execution", printable(name), hint="'runnel list' shows those that exist")
