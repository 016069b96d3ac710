"""The values that a task's templates and context read. Each value is decoded once, on first use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

import msgspec

from runnel.core.effects import INPUT, TaskMessage
from runnel.core.ids import NodeId
from runnel.core.templates.errors import MissingValueError, make_no_output_error
from runnel.core.values import Json, Value, make_value_from_json
from runnel.errors import PayloadError
from runnel.ports.records import BlobStore

LOADED_BYTES_MAX = 256 * 1024 * 1024

_decode = msgspec.json.Decoder().decode


class TaskInputs:
    """The scope of a task's templates, and the source of `ctx.inputs`.

    Lookups are synchronous, so `load` must fetch a blob before its lookup. `secrets` holds the
    secrets that the config names and this worker has.
    """

    __slots__ = ("_decoded", "_loaded", "_task", "secrets")

    def __init__(self, task: TaskMessage) -> None:
        self._task = task
        self._decoded: dict[str, Json] = {}
        self._loaded: dict[str, bytes] = {}
        self.secrets: dict[str, str] = {}

    def lookup(self, root: str) -> Json:
        decoded = self._decoded
        if root not in decoded:
            decoded[root] = self._decode(root)
        return decoded[root]

    def find_existing(self, roots: Iterable[str]) -> dict[str, Json]:
        """Returns the values of those of the given roots that exist."""
        existing = {}
        for root in roots:
            with suppress(MissingValueError):
                existing[root] = self.lookup(root)
        return existing

    @property
    def parents(self) -> Mapping[str, Json]:
        return ParentOutputs(self, self.parent_ids())

    def execution_input(self) -> Json:
        return self.lookup(INPUT)

    def parent_ids(self) -> list[NodeId]:
        return list(islice(self._task.inputs, self._task.parents))

    @property
    def has_blobs(self) -> bool:
        task = self._task
        if task.execution_input.blob is not None:
            return True
        for value in task.inputs.values():  # noqa: SIM110 - a generator takes three times as long
            if value.blob is not None:
                return True
        return False

    def take_cached(
        self, missing: Mapping[str, Value], peek: Callable[[str], bytes | None]
    ) -> bool:
        """Takes the missing blobs from memory with `peek`.

        Returns False if at least one is not in memory, so that `load` has to fetch it.

        Every item of a map reads the same large list. Awaiting that list for each item took 20 µs
        of 65 µs.
        """
        self._check_size(missing)
        for root, value in missing.items():
            data = None if value.blob is None else peek(value.blob)
            if data is None:
                return False
            self._loaded[root] = data
        return True

    async def load(self, roots: Iterable[str], blobs: BlobStore) -> None:
        """Fetches the blobs of the given roots.

        Raises PayloadError if the loaded values are too large together.
        """
        missing = self.find_unloaded(roots)
        self._check_size(missing)
        for root, value in missing.items():
            if value.blob is not None:
                self._loaded[root] = await blobs.get(value.blob)

    def _check_size(self, missing: Mapping[str, Value]) -> None:
        size = sum(value.size for value in missing.values()) + sum(map(len, self._loaded.values()))
        if size > LOADED_BYTES_MAX:
            raise PayloadError(
                f"the inputs of node '{self._task.token.node_id}' take {size:,} bytes together, "
                f"at most {LOADED_BYTES_MAX:,} are loaded for one task: pass less data to it"
            )

    def find_unloaded(self, roots: Iterable[str]) -> dict[str, Value]:
        """Returns the values of the given roots that are blobs and not loaded yet."""
        return {
            root: value
            for root in roots
            if root not in self._loaded
            and (value := self._get_value(root)) is not None
            and value.blob is not None
        }

    def make_portable_task(self) -> TaskMessage:
        """Returns a copy of the task for a child process.

        The copy has inline values for the context, and no config.
        """
        task = self._task
        return msgspec.structs.replace(
            task,
            config=msgspec.Raw(b"null"),
            inputs={node: self._inline(node, task.inputs[node]) for node in self.parent_ids()},
            execution_input=self._inline(INPUT, task.execution_input),
        )

    def _inline(self, root: str, value: Value) -> Value:
        return make_value_from_json(self._loaded[root]) if root in self._loaded else value

    def _get_value(self, root: str) -> Value | None:
        if root == INPUT:
            return self._task.execution_input
        return self._task.inputs.get(NodeId(root))

    def _decode(self, root: str) -> Json:
        if root == "execution":
            return self._describe_execution()
        if root == "secrets":
            return self.secrets
        if root == "item" and self._task.item:
            return _decode(self._task.item)
        value = self._get_value(root)
        if value is None:
            is_skipped = root in self._task.skipped
            reason = "was skipped" if is_skipped else "was skipped or did not complete"
            raise make_no_output_error(root, reason, is_skipped=is_skipped)
        return _decode(self._loaded[root]) if root in self._loaded else value.decode()

    def _describe_execution(self) -> Json:
        """Returns the value of `execution` for templates.

        Conditions get the same value from `core.decide.decision_context.describe_execution`.
        """
        task = self._task
        return {
            "id": task.token.execution_id,
            "workflow": task.workflow,
            "version": task.version,
            "started_at": task.execution_started_at,
            "labels": dict(task.labels),
        }


class ParentOutputs(Mapping[str, Json]):
    """The outputs of the parents by node id, decoded on first use."""

    __slots__ = ("_ids", "_values")

    def __init__(self, values: TaskInputs, ids: list[NodeId]) -> None:
        self._values = values
        self._ids = ids

    def __getitem__(self, node_id: str) -> Json:
        if node_id not in self._ids:
            raise KeyError(node_id)
        return self._values.lookup(node_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"<outputs of {', '.join(self._ids) or 'no parents'}>"
