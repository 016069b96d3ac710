"""A held execution is started by one trigger: whoever comes second is told so, or meant the same.

Two callers may trigger it at the same moment, in two processes. Each names its command by a key,
and the history says whose came first.
"""

from runnel.authoring.payloads import check_text
from runnel.core.checks.wording import quoted
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionStarted
from runnel.core.execution import Execution
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import KeyReusedError, WrongStateError
from runnel.idempotency import KEY_CHARS_MAX, hash_of_input
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock

# Its owner, if it has one, starts it within milliseconds.
STARTED_S = 2.0
STARTED_LOOK_S = 0.01

_SEPARATOR = "\0"


def trigger_key(idempotency_key: str, input_: bytes | None) -> str:
    """With the hash of the input, so that a repetition can be told from another use of the key."""
    check_text(idempotency_key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    digest = "" if input_ is None else hash_of_input(input_)
    return f"{idempotency_key}{_SEPARATOR}{digest}"


class Triggers:
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
        found = await self._starter(execution.id)
        if found != key:
            _refuse(execution, found or "", key)
        return True

    async def confirm(self, execution: Execution, key: str) -> None:
        """After the command was sent: waits until it is known who started the execution.

        Not for long: without a process that runs, the first one to come decides. Raises
        WrongStateError when it was somebody else.
        """
        deadline = self._clock.monotonic() + STARTED_S
        while self._clock.monotonic() < deadline:
            found = await self._starter(execution.id)
            if found is not None:
                if found != key:
                    _refuse(execution, found, key)
                return
            await self._clock.sleep(STARTED_LOOK_S)

    async def _starter(self, execution_id: ExecutionId) -> str | None:
        """The key of the trigger that started it; None when nothing has."""
        for entry in await self._backend.archive.load(execution_id):
            for event in decode_entry(entry).events:
                if isinstance(event, ExecutionStarted):
                    return event.key
        return None


def _refuse(execution: Execution, found: str, key: str) -> None:
    name = key.partition(_SEPARATOR)[0]
    if _SEPARATOR in key and found.partition(_SEPARATOR)[0] == name:
        raise KeyReusedError(quoted(name), execution.id, "another input")
    state = "triggered already" if execution.state is ExecutionState.PENDING else execution.state
    raise WrongStateError(
        f"execution {execution.id} is {state}, only a PENDING one can be triggered"
    )
