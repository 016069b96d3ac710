"""Idempotency keys: a request that is repeated with the same key returns the same execution.

The execution id is derived from the key, so two processes compute the same id without any
communication. A key is in use until retention deletes its execution.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from runnel.authoring.payloads import check_text
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionStarted
from runnel.core.execution import Execution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.message_text import quote_name
from runnel.core.states import ExecutionState
from runnel.errors import KeyReusedError, WrongStateError
from runnel.ports import Backend
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader

KEY_CHARS_MAX = 500
KEY_LABEL = "runnel.key"
"""The label with the idempotency key of the submit."""
INPUT_LABEL = "runnel.input"
"""The label with the hash of the submitted input, because the input itself may be a large blob.

For a rerun, the label has the hash of the rerun's options and input.
"""
_KEY_LABELS = (KEY_LABEL, INPUT_LABEL)
# A derived id has 72 bits after this prefix. No id that is generated from the time has the prefix
# before the year 20,000.
_ID_BYTES = 9
_ID_PREFIX = "k"
_encoder = msgspec.json.Encoder(order="deterministic")


def derive_execution_id(workflow: str, key: str) -> ExecutionId:
    """Returns the execution id for a key; raises PayloadError if the key is empty or too long."""
    check_text(key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = hashlib.blake2b(f"{workflow}\0{key}".encode(), digest_size=_ID_BYTES).hexdigest()
    return ExecutionId(_ID_PREFIX + digest)


def build_key_labels(key: str, input_: bytes) -> dict[str, str]:
    """Returns the labels that store the key and the input's hash, to compare a second submit."""
    return {KEY_LABEL: key, INPUT_LABEL: hash_input(input_)}


def remove_key_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels without the idempotency key, which a rerun must not copy."""
    return {name: value for name, value in labels.items() if name not in _KEY_LABELS}


async def find_execution_of_key(
    archive: Archive,
    execution_id: ExecutionId,
    key: str,
    labels: Mapping[str, str],
    definition: DefinitionHash | None = None,
) -> ExecutionHeader | None:
    """Returns the execution that has this idempotency key, or None.

    Raises KeyReusedError as `check_key_reuse` does.
    """
    header = await archive.get_header(execution_id)
    if header is not None:
        check_key_reuse(header, key, labels, definition)
    return header


def check_key_reuse(
    header: ExecutionHeader,
    key: str,
    labels: Mapping[str, str],
    definition: DefinitionHash | None = None,
) -> None:
    """Raises KeyReusedError if the execution of a key has another input or definition.

    For a rerun, `definition` is None, because the newest version may have changed since the first
    call.
    """
    difference = ""
    if definition not in (None, header.definition):
        difference = f"version {header.version} of the workflow"
    elif header.labels.get(INPUT_LABEL) != labels[INPUT_LABEL]:
        difference = "other nodes, configs or input" if definition is None else "another input"
    if difference:
        raise KeyReusedError(quote_name(key), header.execution_id, difference)


def hash_input(data: bytes) -> str:
    """Returns a hash of JSON that does not depend on the order of keys."""
    in_order = _encoder.encode(msgspec.json.decode(data))
    return hashlib.blake2b(in_order, digest_size=_ID_BYTES).hexdigest()


# Only one trigger can start a held execution. A second trigger is refused, unless it has the same
# key and input as the first one.
#
# Two processes may trigger an execution at the same time. Each trigger command has a key. The
# history has the key of the command that the owner of the partition read first.

# The maximum wait for the start of a triggered execution. If the partition has an owner, the owner
# starts the execution within milliseconds.
START_TIMEOUT_S = 2.0
START_POLL_INTERVAL_S = 0.01

_SEPARATOR = "\0"


def build_trigger_key(idempotency_key: str, input_: bytes | None) -> str:
    """Returns the key of a trigger: the idempotency key and the hash of the input.

    A trigger with the same idempotency key and another input is not a repetition.
    """
    check_text(idempotency_key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = "" if input_ is None else hash_input(input_)
    return f"{idempotency_key}{_SEPARATOR}{digest}"


class TriggerGuard:
    """Checks that a held execution is started by one trigger only."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def is_repetition(self, execution: Execution, key: str) -> bool:
        """Returns True if a trigger with this key started the execution; False while it is PENDING.

        Raises WrongStateError if another trigger started the execution. Raises KeyReusedError if
        that trigger had the same idempotency key and another input.
        """
        if execution.state is ExecutionState.PENDING:
            return False
        starting_key = await self._find_starting_key(execution.id)
        if starting_key != key:
            _raise_refusal(execution, starting_key or "", key)
        return True

    async def confirm(self, execution: Execution, key: str) -> None:
        """Waits until the execution has started; raises an error if another trigger started it.

        The caller has sent its trigger command before. The wait ends after 2 s without an error: if
        no process owns the partition, the next owner starts the execution. Raises WrongStateError
        and KeyReusedError as `is_repetition` does.
        """
        deadline = self._clock.monotonic() + START_TIMEOUT_S
        while self._clock.monotonic() < deadline:
            starting_key = await self._find_starting_key(execution.id)
            if starting_key is not None:
                if starting_key != key:
                    _raise_refusal(execution, starting_key, key)
                return
            await self._clock.sleep(START_POLL_INTERVAL_S)

    async def _find_starting_key(self, execution_id: ExecutionId) -> str | None:
        """Returns the key of the trigger that started the execution, or None."""
        for entry in await self._backend.archive.load(execution_id):
            for event in decode_entry(entry).events:
                if isinstance(event, ExecutionStarted):
                    return event.key
        return None


def _raise_refusal(execution: Execution, starting_key: str, key: str) -> None:
    name = key.partition(_SEPARATOR)[0]
    if _SEPARATOR in key and starting_key.partition(_SEPARATOR)[0] == name:
        raise KeyReusedError(quote_name(name), execution.id, "another input")
    state = "triggered already" if execution.state is ExecutionState.PENDING else execution.state
    raise WrongStateError(
        f"execution {execution.id} is {state}; only a PENDING execution can be triggered"
    )
