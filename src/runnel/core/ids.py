"""Ids of executions, nodes and definitions, and the token that identifies an attempt of a task."""

import hashlib
import re
from typing import NewType

import msgspec

ExecutionId = NewType("ExecutionId", str)
NodeId = NewType("NodeId", str)
DefinitionHash = NewType("DefinitionHash", str)
Nonce = NewType("Nonce", str)

NO_ITEM = -1

# The longest id of a child execution. Ids are part of database keys, and an index entry in
# PostgreSQL holds at most 2,704 bytes in all columns.
CHILD_ID_CHARS_MAX = 500

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")


class TaskToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies one attempt of a task.

    The core accepts a report only if its token is the current one.

    The nonce is new in every commit. After a rollback of the store, the same attempt number is
    issued again. The nonce distinguishes the new attempt from the lost one.
    """

    execution_id: ExecutionId
    node_id: NodeId
    item: int
    attempt: int
    nonce: Nonce

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of a node or item.

        User code can deduplicate by this key.
        """
        if self.item == NO_ITEM:
            return f"{self.execution_id}/{self.node_id}"
        return f"{self.execution_id}/{self.node_id}/{self.item}"


class NodeRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies a node of an execution, or one item of a map.

    `item` is NO_ITEM for the node itself.
    """

    execution_id: ExecutionId
    node_id: NodeId
    item: int = NO_ITEM


def make_node_ref(token: TaskToken) -> NodeRef:
    """Returns the node or item whose attempt the token identifies."""
    return NodeRef(token.execution_id, token.node_id, token.item)


def get_root_id(execution_id: ExecutionId) -> ExecutionId:
    """Returns the id of the root execution.

    The root's id is a prefix of the ids of all its children.
    """
    return ExecutionId(execution_id.partition(".")[0])


def format_node_name(node_id: str, item: int = NO_ITEM) -> str:
    """Returns the text for a node, or for one item of a map: `each[2]`."""
    return node_id if item == NO_ITEM else f"{node_id}[{item}]"


def make_child_id(ref: NodeRef, attempt: int) -> ExecutionId:
    """Returns the id of a child execution.

    The id is deterministic, so that a child that is created twice is one execution.

    Dots are separators. If a node id has characters other than letters, digits, `_` and `-`, a hash
    replaces the node id. If the id would be too long, a hash replaces everything between the root
    and the attempt.
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
    """Returns a hash of the name with a leading tilde. No plain node id begins with a tilde."""
    return "~" + hashlib.blake2b(name.encode(), digest_size=digest_size).hexdigest()
