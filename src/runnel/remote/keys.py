"""Idempotency keys as a header can have them."""

from runnel.authoring.payloads import check_text
from runnel.core.checks.wording import quoted
from runnel.errors import InputError
from runnel.idempotency import KEY_CHARS_MAX

_BLANKS = " \t"
_LAST_CONTROL, _DELETE = "\x1f", "\x7f"


def check_key(key: str) -> None:
    """Raises InputError for one that a header can't have, and what a local call does."""
    check_text(key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    is_torn = any(each <= _LAST_CONTROL or each == _DELETE for each in key)
    if is_torn or key != key.strip(_BLANKS):
        raise InputError(
            "over HTTP, an idempotency key has no control characters and no blanks around it, "
            f"got {quoted(key)}"
        )
