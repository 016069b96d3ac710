"""Idempotency keys: a request that is repeated with the same key returns the same execution.

The id of the execution is derived from the key, so two processes get the same id without any
communication. A key is known until retention deletes its execution.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from runnel.authoring.payloads import check_text
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionStarted
from runnel.core.execution import Execution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.wording import quote_name
from runnel.errors import KeyReusedError, WrongStateError
from runnel.ports import Backend
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader

KEY_CHARS_MAX = 500
KEY_LABEL = "runnel.key"
"""The idempotency key of the submit."""
INPUT_LABEL = "runnel.input"
"""The hash of the submitted input: the input itself may be a large blob.

For a rerun, the hash of its options and its input.
"""
_KEY_LABELS = (KEY_LABEL, INPUT_LABEL)
# An id has 72 bits. No id that is made from a time begins with this prefix before the year 20,000.
_ID_BYTES = 9
_ID_PREFIX = "k"
_encoder = msgspec.json.Encoder(order="deterministic")


def derive_execution_id(workflow: str, key: str) -> ExecutionId:
    """Returns the id of the execution; raises PayloadError for an empty or too long key."""
    check_text(key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = hashlib.blake2b(f"{workflow}\0{key}".encode(), digest_size=_ID_BYTES).hexdigest()
    return ExecutionId(_ID_PREFIX + digest)


def build_key_labels(key: str, input_: bytes) -> dict[str, str]:
    """Returns the labels by which a second submit is compared with the first one."""
    return {KEY_LABEL: key, INPUT_LABEL: hash_input(input_)}


def remove_key_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels for a rerun, which does not have the key of the former execution."""
    return {name: value for name, value in labels.items() if name not in _KEY_LABELS}


async def find_execution_of_key(
    archive: Archive,
    execution_id: ExecutionId,
    key: str,
    labels: Mapping[str, str],
    definition: DefinitionHash | None = None,
) -> ExecutionHeader | None:
    """Returns the execution that has this key, or None.

    Raises KeyReusedError if its input or its definition differs. A rerun gives no `definition`,
    because the newest version may have changed since the first call.
    """
    header = await archive.get_header(execution_id)
    if header is None:
        return None
    difference = ""
    if definition not in (None, header.definition):
        difference = f"version {header.version} of the workflow"
    elif header.labels.get(INPUT_LABEL) != labels[INPUT_LABEL]:
        difference = "other nodes, configs or input" if definition is None else "another input"
    if difference:
        raise KeyReusedError(quote_name(key), execution_id, difference)
    return header


def hash_input(data: bytes) -> str:
    """Hashes JSON independently of the order of its keys, which a second caller may change."""
    in_order = _encoder.encode(msgspec.json.decode(data))
    return hashlib.blake2b(in_order, digest_size=_ID_BYTES).hexdigest()


# One trigger starts a held execution. A second trigger is refused, unless it repeats the first.
#
# Two processes may trigger an execution at the same time. Each command has a key, and the history
# has the key of the trigger that came first.

# The owner of the partition, if there is one, starts the execution within milliseconds.
START_TIMEOUT_S = 2.0
START_POLL_INTERVAL_S = 0.01

_SEPARATOR = "\0"


def build_trigger_key(idempotency_key: str, input_: bytes | None) -> str:
    """Joins the key and the hash of the input, so that another input is not a repetition."""
    check_text(idempotency_key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = "" if input_ is None else hash_input(input_)
    return f"{idempotency_key}{_SEPARATOR}{digest}"


class TriggerGuard:
    """Makes sure that one trigger starts a held execution."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def is_repetition(self, execution: Execution, key: str) -> bool:
        """Returns whether a trigger with this key started the execution; False while it is PENDING.

        Raises WrongStateError if another trigger started it. Raises KeyReusedError if a trigger
        with the same key and another input started it.
        """
        if execution.state is ExecutionState.PENDING:
            return False
        starting_key = await self._find_starting_key(execution.id)
        if starting_key != key:
            _raise_refusal(execution, starting_key or "", key)
        return True

    async def confirm(self, execution: Execution, key: str) -> None:
        """Waits until the history has the trigger that came first; raises if it is another one.

        Call it after the command was sent. It waits 2 s at most: if no process runs, the next one
        that starts decides. Raises WrongStateError and KeyReusedError as `is_repetition` does.
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
