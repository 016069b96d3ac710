"""What a template refers to: a root (a node id, `input`, `item`, …) and a path below it."""

from typing import TypeAlias

import msgspec

from runnel.core.templates.failures import TemplateSyntaxError

Key: TypeAlias = str | int

RESERVED = frozenset({"input", "execution", "item", "nodes", "secrets"})
OPERATORS = frozenset({"and", "else", "if", "in", "is", "not", "or"})


class Reference(msgspec.Struct, frozen=True):
    """`fetch.result[0]` is root `fetch`, path `('result', 0)`.

    `nodes['x-y'].z` is root `x-y`, path `('z',)`: the same lookup as by a bare name, but
    `via_nodes` tells that the root can only be a node.
    """

    root: str
    path: tuple[Key, ...] = ()
    via_nodes: bool = False

    def __str__(self) -> str:
        root = f"nodes['{self.root}']" if self.via_nodes else self.root
        return path_text(root, self.path)


def reference_to(root: str, path: tuple[Key, ...]) -> Reference:
    """Raises TemplateSyntaxError when `nodes` is not followed by the id of a node."""
    if root in OPERATORS:
        raise TemplateSyntaxError(
            f"'{root}' is an operator; a node of that name is nodes['{root}']"
        )
    if root != "nodes":
        return Reference(root, path)
    if not path or not isinstance(path[0], str):
        raise TemplateSyntaxError("'nodes' must be followed by the id of a node: nodes['my-node']")
    if path[0] in RESERVED:
        raise TemplateSyntaxError(
            f"no node can be named '{path[0]}', the name is reserved; write {path[0]} for itself"
        )
    return Reference(path[0], path[1:], via_nodes=True)


def path_text(root: str, path: tuple[Key, ...]) -> str:
    """As a user would write it."""
    return root + "".join(map(_step_text, path))


def _step_text(key: Key) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"['{key}']"
    return f"[{key}]"
