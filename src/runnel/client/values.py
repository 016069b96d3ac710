"""Values on their way into a command: inline when small, else a blob that is sent besides."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from runnel.core.decide.decision_context import NO_ITEM_VALUE, BlobNeededError, ExecutionScope
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.templates.errors import TemplateError
from runnel.core.templates.template import TemplateTree, compile_tree
from runnel.core.values import (
    BLOB_BYTES_MAX,
    INLINE_BYTES_MAX,
    Json,
    Value,
    make_blob_reference,
    make_value_from_json,
)
from runnel.errors import PayloadError
from runnel.ports.clock import IdGenerator
from runnel.ports.records import BlobStore
from runnel.ports.store import NO_BLOBS

ValueWithBlobs = tuple[Value, Mapping[str, bytes]]
"""The value as a command has it, and what is to be sent with that command."""


class PayloadStorage:
    def __init__(self, blobs: BlobStore, ids: IdGenerator) -> None:
        self._blobs = blobs
        self._ids = ids

    def to_value(self, data: bytes, prefix: str) -> ValueWithBlobs:
        """A key of its own for each call: of two calls at once, one may be accepted.

        Raises PayloadError for what is too large.
        """
        if len(data) <= INLINE_BYTES_MAX:
            return make_value_from_json(data), NO_BLOBS
        if len(data) > BLOB_BYTES_MAX:
            raise PayloadError(
                f"a value has {len(data)} bytes, at most {BLOB_BYTES_MAX} are allowed"
            )
        key = f"{prefix}/{self._ids.nonce()}"
        return make_blob_reference(key, len(data)), {key: data}

    async def load(self, value: Value) -> bytes:
        return await self._blobs.get(value.blob) if value.blob else value.data

    async def copy_value(self, value: Value, execution_id: ExecutionId) -> ValueWithBlobs:
        """The value of another execution as this one's own: the other may be deleted any time."""
        if value.blob is None:
            return value, NO_BLOBS
        return self.to_value(await self.load(value), f"{execution_id}/taken")


# The config of a node as its task gets it, worked out again from what is stored.
#
# The same templates over the same outputs, which do not change once they are there. Secrets are
# not stored, and shown by their names.

# A task may load more: a person who looks does not want to read it.
LOADED_BYTES_MAX = 16 * 1024 * 1024
SECRETS_ROOT = "secrets"

T = TypeVar("T")


class ConfigResolver:
    """For one execution; blobs are loaded when a template reaches them."""

    def __init__(self, execution: Execution, blobs: BlobStore) -> None:
        self._execution = execution
        self._blobs = blobs
        self._loaded: dict[str, bytes] = {}

    def peek(self, key: str) -> bytes | None:
        return self._loaded.get(key)

    async def resolve_config(self, index: int, item: int = NO_ITEM) -> Json:
        """Raises TemplateError, and PayloadError when too much would have to be loaded."""
        given = self._execution.configs.get(index)
        tree = self._execution.graph.nodes[index].config
        if given is not None:
            tree = compile_tree(msgspec.json.decode(given.raw))
        value = NO_ITEM_VALUE if item == NO_ITEM else await self.resolve_item(index, item)
        scope = _MaskedSecretsScope(self._execution, self, tree, value)
        return await self._evaluate(lambda: tree.resolve(scope))

    async def resolve_item(self, index: int, item: int) -> Json:
        """The element of the list of `for_each`; raises as `config` does."""
        expression = self._execution.graph.nodes[index].for_each
        if expression is None:
            return None
        scope = ExecutionScope(self._execution, self)
        items: Json = await self._evaluate(lambda: expression.evaluate(scope))
        return items[item] if isinstance(items, list) and item < len(items) else None

    async def _evaluate(self, evaluate: Callable[[], T]) -> T:
        while True:
            try:
                return evaluate()
            except BlobNeededError as needed:
                self._loaded[needed.key] = await self._blobs.get(needed.key)
            if sum(map(len, self._loaded.values())) > LOADED_BYTES_MAX:
                raise PayloadError(f"more than {LOADED_BYTES_MAX:,} bytes would have to be loaded")


class _MaskedSecretsScope(ExecutionScope):
    def __init__(
        self, execution: Execution, blobs: ConfigResolver, tree: TemplateTree, item: object
    ) -> None:
        super().__init__(execution, blobs, item=item)
        names = [
            each.path[0] for each in tree.references if each.root == SECRETS_ROOT and each.path
        ]
        self._secrets = {str(name): f"{{{{ secrets.{name} }}}}" for name in names}

    def lookup(self, root: str) -> Json:
        return self._secrets if root == SECRETS_ROOT else super().lookup(root)


RESOLVE_ERRORS = (TemplateError, PayloadError)
