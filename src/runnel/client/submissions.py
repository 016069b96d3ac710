"""Creates the executions of many inputs in one step: all inputs are checked before one is stored.

A repeated call with the same idempotency keys starts no execution twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from runnel.authoring.input_schema import CheckedInput
from runnel.authoring.payloads import check_labels, check_priority, encode_payload
from runnel.client.idempotency import build_key_labels, check_key_reuse, derive_execution_id
from runnel.core.commands import CreateExecution
from runnel.core.ids import ExecutionId
from runnel.core.message_text import quote_name
from runnel.core.values import BLOB_BYTES_MAX
from runnel.errors import InputError, InvalidInputError, PayloadError
from runnel.ports.store import make_pending_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.client.definitions import DefinitionCache
    from runnel.client.values import PayloadStorage
    from runnel.core.ids import DefinitionHash
    from runnel.core.values import Json
    from runnel.core.workflow import Workflow
    from runnel.ports import Backend
    from runnel.ports.clock import Clock, IdGenerator
    from runnel.ports.store import ExecutionHeader

INPUTS_MAX = 1_000
"""The maximum number of inputs in one call."""
PROBLEMS_SHOWN_MAX = 10
# After so many problems, the further inputs are not checked.
PROBLEMS_MAX = 1_000
# Other callers run after this time. A thread checks each large input.
STEP_S_MAX = 0.01


def format_problems(head: str, problems: Sequence[str]) -> str:
    """Returns the head, the number of problems, and the first problems."""
    listed = "".join(f"\n  - {problem}" for problem in problems[:PROBLEMS_SHOWN_MAX])
    hidden = len(problems) - PROBLEMS_SHOWN_MAX
    more = f"\n  and {hidden:,} more" if hidden > 0 else ""
    noun = "problem" if len(problems) == 1 else "problems"
    return f"{head}: {len(problems):,} {noun}{listed}{more}"


class _Requested(NamedTuple):
    """The ids, keys and labels of the executions of one call."""

    ids: Sequence[ExecutionId]
    keys: Sequence[str] | None
    labels: Sequence[Mapping[str, str]]
    definition: DefinitionHash


class ExecutionCreator:
    """Creates many executions of one workflow."""

    def __init__(
        self,
        backend: Backend,
        definitions: DefinitionCache,
        payloads: PayloadStorage,
        clock: Clock,
        ids: IdGenerator,
    ) -> None:
        self._backend = backend
        self._definitions = definitions
        self._payloads = payloads
        self._clock = clock
        self._ids = ids
        self._turn_began_at = clock.monotonic()

    async def create(
        self,
        workflow: Workflow,
        inputs: Sequence[Json],
        *,
        labels: Mapping[str, str],
        priority: int | None,
        keys: Sequence[str] | None,
        version: int | None,
    ) -> list[ExecutionHeader]:
        """Creates an execution for each input, unless one with the same key exists.

        Returns the headers in the order of the inputs. With `version`, the definition is not stored
        again.
        """
        _check_count(inputs, keys)
        hash_ = self._definitions.validate_and_hash(workflow)
        payloads = await self._check_inputs(workflow, inputs)
        kept_labels, kept_priority = check_labels(labels), check_priority(priority)
        if keys is None:
            ids = [ExecutionId(self._ids.execution_id()) for _ in payloads]
            all_labels: list[dict[str, str]] = [kept_labels] * len(ids)
        else:
            ids = [derive_execution_id(workflow.name, key) for key in keys]
            all_labels = []
            for key, (data, _) in zip(keys, payloads, strict=True):
                all_labels.append(kept_labels | build_key_labels(key, data))
                await self._let_others_run()
        requested = _Requested(ids, keys, all_labels, hash_)
        known = await self._find_known(requested)
        commands: list[CreateExecution] = []
        blobs: dict[str, bytes] = {}
        stored_version = version or await self._definitions.store(hash_, workflow)
        for id_, own_labels, (_, stored) in zip(ids, all_labels, payloads, strict=True):
            if id_ in known:
                continue
            value, own_blobs = self._payloads.to_value(stored, f"{id_}/input")
            blobs |= own_blobs
            commands.append(
                CreateExecution(
                    execution_id=id_,
                    workflow=workflow.name,
                    definition=hash_,
                    version=stored_version,
                    input=value,
                    labels=own_labels,
                    priority=kept_priority,
                    created_at=self._clock.now(),
                )
            )
        if commands:
            await self._backend.mailbox.send(
                commands, blobs=blobs, requires_definition=version is not None
            )
            if version is None:
                await self._definitions.store_again_if_deleted(hash_, workflow)
            # A concurrent caller with the same keys may have created an execution first.
            known = await self._find_known(requested)
        created = {command.execution_id: make_pending_header(command) for command in commands}
        return [known.get(id_) or created[id_] for id_ in ids]

    async def _check_inputs(
        self, workflow: Workflow, inputs: Sequence[Json]
    ) -> list[tuple[bytes, bytes]]:
        """Returns each input as JSON, as submitted and with defaults.

        Raises InvalidInputError with the problems of all inputs, at most about PROBLEMS_MAX, and
        PayloadError.
        """
        payloads: list[tuple[bytes, bytes]] = []
        problems: list[str] = []
        size = 0
        for index, given in enumerate(inputs):
            where = f"inputs[{index}]"
            value = given.value if isinstance(given, CheckedInput) else given
            is_checked = value is not None and isinstance(given, CheckedInput)
            data = encode_payload({} if value is None else value, where=where)
            size += len(data)
            if size > BLOB_BYTES_MAX:
                raise PayloadError(
                    f"inputs: expected at most {BLOB_BYTES_MAX} bytes in one call; submit fewer "
                    "inputs at once"
                )
            try:
                stored = await self._payloads.complete_input(
                    workflow, data, is_checked=is_checked, where=where
                )
            except InvalidInputError as error:
                problems += error.problems
                if len(problems) >= PROBLEMS_MAX:
                    break
            else:
                payloads.append((data, stored))
            await self._let_others_run()
        if problems:
            head = f"the inputs do not fit workflow {quote_name(workflow.name)}"
            raise InvalidInputError(format_problems(head, problems), problems=problems)
        return payloads

    async def _let_others_run(self) -> None:
        """Ends this turn of the event loop if it has lasted for STEP_S_MAX."""
        if self._clock.monotonic() - self._turn_began_at >= STEP_S_MAX:
            await self._clock.sleep(0)
            self._turn_began_at = self._clock.monotonic()

    async def _find_known(self, requested: _Requested) -> Mapping[ExecutionId, ExecutionHeader]:
        """Returns the executions that exist; raises KeyReusedError if one differs."""
        if requested.keys is None:
            return {}
        known = await self._backend.archive.get_headers(requested.ids)
        for id_, key, labels in zip(requested.ids, requested.keys, requested.labels, strict=True):
            if id_ in known:
                check_key_reuse(known[id_], key, labels, requested.definition)
        return known


def _check_count(inputs: Sequence[Json], keys: Sequence[str] | None) -> None:
    if not 1 <= len(inputs) <= INPUTS_MAX:
        raise InputError(f"inputs: expected 1 to {INPUTS_MAX:,} inputs, got {len(inputs):,}")
    if keys is None:
        return
    if len(keys) != len(inputs):
        raise InputError(
            f"idempotency_keys: expected one key for each of {len(inputs):,} inputs, got "
            f"{len(keys):,}"
        )
    for key, count in Counter(keys).items():
        if count > 1:
            raise InputError(
                f"idempotency_keys: {quote_name(key)} is given {count} times; each input needs "
                "its own key"
            )
