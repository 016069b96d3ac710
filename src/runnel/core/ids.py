"""Names for the things the core talks about, and the token that fences a task."""

import hashlib
import re
from typing import NewType

import msgspec

ExecutionId = NewType("ExecutionId", str)
NodeId = NewType("NodeId", str)
DefinitionHash = NewType("DefinitionHash", str)
Nonce = NewType("Nonce", str)

NO_ITEM = -1

# Ids are keys everywhere, and an index of PostgreSQL takes 2,704 bytes of all its columns together.
CHILD_ID_CHARS_MAX = 500

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")


class TaskToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Names one attempt; a report is accepted only while its token is the current one.

    The nonce is new in every commit, so an attempt that was issued, lost with a rolled-back store
    and issued again under the same number is still told apart.
    """

    execution_id: ExecutionId
    node_id: NodeId
    item: int
    attempt: int
    nonce: Nonce

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of a node (or item): what user code deduplicates by."""
        if self.item == NO_ITEM:
            return f"{self.execution_id}/{self.node_id}"
        return f"{self.execution_id}/{self.node_id}/{self.item}"


class NodeRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node of an execution, or one item of its map (`item` is NO_ITEM for the node itself)."""

    execution_id: ExecutionId
    node_id: NodeId
    item: int = NO_ITEM


def make_node_ref(token: TaskToken) -> NodeRef:
    """What this is an attempt of."""
    return NodeRef(token.execution_id, token.node_id, token.item)


def get_root_id(execution_id: ExecutionId) -> ExecutionId:
    """The root of a tree of child executions; its id is the prefix of all of theirs."""
    return ExecutionId(execution_id.partition(".")[0])


def make_child_id(ref: NodeRef, attempt: int) -> ExecutionId:
    """Deterministic, so that starting the same child twice is seen as the same child.

    Dots separate, so a node id with one (or with anything but a plain word) stands as its hash. So
    does all between the root and the attempt when it would be longer than an id may be.
    """
    node = ref.node_id
    if not _PLAIN_ID.fullmatch(node):
        node = NodeId(_hash_name(node, digest_size=6))
    item = "" if ref.item == NO_ITEM else f".{ref.item}"
    id_ = f"{ref.execution_id}.{node}{item}"
    if len(id_) + len(f".{attempt}") > CHILD_ID_CHARS_MAX:
        id_ = f"{get_root_id(ref.execution_id)}.{_hash_name(id_, digest_size=16)}"
    return ExecutionId(f"{id_}.{attempt}")


def _hash_name(name: str, *, digest_size: int) -> str:
    """No plain word begins with a tilde."""
    return "~" + hashlib.blake2b(name.encode(), digest_size=digest_size).hexdigest()
