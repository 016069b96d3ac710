"""Checks the values that callers pass: input, labels, reasons and names of signals.

A bad value must be refused here. The partition owner processes the value next, but can't report an
error to the caller.
"""

from collections.abc import Mapping

import msgspec

from runnel.core.message_text import describe_value, quote_name, shorten, suggest_name
from runnel.core.validation.checks import PRIORITY
from runnel.core.values import Json, find_non_finite
from runnel.core.workflow import WAIT_FOR_SIGNAL, Workflow
from runnel.errors import InputError, PayloadError

LABELS_MAX = 64
LABEL_KEY_CHARS_MAX = 100
LABEL_CHARS_MAX = 1_000
# The values of Runnel's own labels are paths, which have up to 4,096 bytes (PATH_MAX).
RESERVED_LABEL_PREFIX = "runnel."
RESERVED_LABEL_CHARS_MAX = 5_000
REASON_CHARS_MAX = 2_000
NAME_CHARS_MAX = 500


def encode_payload(value: Json, *, where: str) -> bytes:
    """Encodes a value as JSON; raises PayloadError if the value is not JSON.

    `where` names the value in the message.
    """
    try:
        data = _json_encoder.encode(value)
        # msgspec writes NaN as null, so output without a null needs no search for NaN.
        non_finite = find_non_finite(value, where) if b"null" in data else None
    except RecursionError as error:
        raise PayloadError(
            f"{where}: the value is nested too deeply, or contains itself"
        ) from error
    except UnicodeEncodeError as error:
        raise PayloadError(f"{where}: {_SURROGATE_PROBLEM}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"{where}: the value is not JSON: {error}") from error
    if non_finite is not None:
        path, _ = non_finite
        raise PayloadError(f"{path}: JSON has no NaN or infinity; use a text or null")
    return data


def check_priority(priority: int | None) -> int | None:
    """Returns the priority of an execution; raises PayloadError if it is out of range."""
    if priority is not None and not PRIORITY.fits(priority):
        raise PayloadError(
            f"priority: expected {PRIORITY.expected}, got {describe_value(priority)}"
        )
    return priority


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the labels; raises PayloadError for too many or too long labels."""
    if not labels:
        return {}
    if len(labels) > LABELS_MAX:
        raise PayloadError(f"labels: expected at most {LABELS_MAX} labels, got {len(labels)}")
    for key, value in labels.items():
        check_text(key, "the key of a label", chars_max=LABEL_KEY_CHARS_MAX)
        is_reserved = key.startswith(RESERVED_LABEL_PREFIX)
        chars_max = RESERVED_LABEL_CHARS_MAX if is_reserved else LABEL_CHARS_MAX
        check_text(value, f"label {quote_name(key)}", chars_max=chars_max, chars_min=0)
    return dict(labels)


def shorten_reason(reason: str) -> str:
    """Returns the reason, cut to REASON_CHARS_MAX; raises PayloadError if it is not text."""
    _check_is_text(reason, "the reason")
    return shorten(reason, REASON_CHARS_MAX)


def check_text(text: Json, subject: str, *, chars_max: int, chars_min: int = 1) -> None:
    _check_is_text(text, subject)
    if not chars_min <= len(text) <= chars_max:
        raise PayloadError(
            f"{subject}: expected {chars_min} to {chars_max:,} characters, got {len(text):,}"
        )


def _check_is_text(text: Json, subject: str) -> None:
    """Raises PayloadError for a value that is not text, and for text that UTF-8 can't encode.

    Such a text could be stored, but not be read again.
    """
    if not isinstance(text, str):
        raise PayloadError(f"{subject}: expected a text, got {describe_value(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{subject}: {_SURROGATE_PROBLEM}") from error


_SURROGATE_PROBLEM = (
    "the text contains half of a surrogate pair, which is not a character; remove it"
)
_json_encoder = msgspec.json.Encoder()


def check_signal_name(workflow: Workflow, name: str) -> None:
    """Raises InputError if no node of the workflow waits for this signal.

    Accepts every name if a node builds the name of its signal with a template.
    """
    names = sorted(
        {
            str(node.config.get("signal"))
            for node in workflow.nodes
            if node.handler == WAIT_FOR_SIGNAL
        }
    )
    if any("{{" in signal for signal in names) or name in names:
        return
    if not names:
        raise InputError(f"workflow '{workflow.name}' has no node that waits for a signal")
    hint = suggest_name(name, names) or f"; its nodes wait for: {', '.join(names)}"
    raise InputError(f"no node of workflow '{workflow.name}' waits for the signal '{name}'{hint}")
