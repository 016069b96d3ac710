"""One execution for one key: whoever asks again with the same key is given the same execution.

Its id is made from the key, so that two callers, in any two processes, mean the same one without
having heard of each other. A key is known as long as its execution is: until retention deletes it.
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
"""The key that an execution was submitted with."""
INPUT_LABEL = "runnel.input"
"""The hash of the input that it was submitted with: the input itself may be a large blob.

Of a rerun, of all that was wanted of it.
"""
_KEY_LABELS = (KEY_LABEL, INPUT_LABEL)
# 72 bits, and a letter that ids made of the time begin with in the year 20,000.
_ID_BYTES = 9
_ID_PREFIX = "k"
_encoder = msgspec.json.Encoder(order="deterministic")


def derive_execution_id(workflow: str, key: str) -> ExecutionId:
    """Raises PayloadError for a key that is empty, too long or no text."""
    check_text(key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = hashlib.blake2b(f"{workflow}\0{key}".encode(), digest_size=_ID_BYTES).hexdigest()
    return ExecutionId(_ID_PREFIX + digest)


def build_key_labels(key: str, input_: bytes) -> dict[str, str]:
    """What is noted with an execution, so that a second submit can be compared with it."""
    return {KEY_LABEL: key, INPUT_LABEL: hash_input(input_)}


def remove_key_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """For an execution that is made from another one: it was not submitted with its key."""
    return {name: value for name, value in labels.items() if name not in _KEY_LABELS}


async def find_execution_of_key(
    archive: Archive,
    execution_id: ExecutionId,
    key: str,
    labels: Mapping[str, str],
    definition: DefinitionHash | None = None,
) -> ExecutionHeader | None:
    """Returns the execution that has this key, or None.

    Raises KeyReusedError if its content or its definition differs. A rerun names no definition: the
    newest version may have been another one at the time of the first call.
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
    """The same for the same JSON in any order of its keys: who asks again may write another one."""
    in_order = _encoder.encode(msgspec.json.decode(data))
    return hashlib.blake2b(in_order, digest_size=_ID_BYTES).hexdigest()


# A held execution is started by one trigger: whoever comes second is told so, or meant the same.
#
# Two callers may trigger it at the same moment, in two processes. Each names its command by a
# key, and the history says whose came first.

# Its owner, if it has one, starts it within milliseconds.
START_TIMEOUT_S = 2.0
START_POLL_INTERVAL_S = 0.01

_SEPARATOR = "\0"


def build_trigger_key(idempotency_key: str, input_: bytes | None) -> str:
    """With the hash of the input, so that a repetition can be told from another use of the key."""
    check_text(idempotency_key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = "" if input_ is None else hash_input(input_)
    return f"{idempotency_key}{_SEPARATOR}{digest}"


class TriggerGuard:
    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def is_repetition(self, execution: Execution, key: str) -> bool:
        """Whether this very trigger has started it; False while it is PENDING.

        Raises WrongStateError when it was started otherwise, or is over; KeyReusedError when the
        same key came with another input.
        """
        if execution.state is ExecutionState.PENDING:
            return False
        found = await self._find_starting_key(execution.id)
        if found != key:
            _raise_refusal(execution, found or "", key)
        return True

    async def confirm(self, execution: Execution, key: str) -> None:
        """After the command was sent: waits until it is known who started the execution.

        Not for long: without a process that runs, the first one to come decides. Raises
        WrongStateError when it was somebody else.
        """
        deadline = self._clock.monotonic() + START_TIMEOUT_S
        while self._clock.monotonic() < deadline:
            found = await self._find_starting_key(execution.id)
            if found is not None:
                if found != key:
                    _raise_refusal(execution, found, key)
                return
            await self._clock.sleep(START_POLL_INTERVAL_S)

    async def _find_starting_key(self, execution_id: ExecutionId) -> str | None:
        """The key of the trigger that started it; None when nothing has."""
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
        f"execution {execution.id} is {state}, only a PENDING one can be triggered"
    )
