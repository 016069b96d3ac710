"""A node's config: compiled once for all tasks that share it, resolved for each of them."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import msgspec

from runnel.core.json_types import Json
from runnel.core.templates import Reference, Scope, TemplateSyntaxError, Tree, compile_tree

COMPILED_MAX = 1024
COMPILED_BYTES_MAX = 64 * 1024
SECRETS = "secrets"

Path: TypeAlias = tuple[str | int, ...]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Config:
    """Resolving it gives each task values of its own: a handler may change what it gets.

    `secrets` are the names of those that its templates need.
    """

    __slots__ = ("_data", "_fixed", "_tree", "roots", "secrets")

    def __init__(self, data: bytes) -> None:
        tree = compile_tree(_decode(data))
        self._data = data
        self._tree: Tree | None = None if tree.is_static else tree
        # `Tree.resolve` shares what holds no template: those parts are made anew from bytes.
        self._fixed = () if tree.is_static else tuple(_fixed_parts(tree.value))
        self.roots = frozenset(reference.root for reference in tree.references)
        self.secrets = frozenset(map(_secret_name, filter(_is_secret, tree.references)))

    @property
    def template(self) -> Json:
        """As it was written."""
        return _decode(self._data)

    def resolve(self, scope: Scope) -> Json:
        """Raises a TemplateError that names the field and what is wrong with it."""
        if self._tree is None:
            return _decode(self._data)
        resolved = self._tree.resolve(scope)
        for path, data in self._fixed:
            holder = resolved
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = _decode(data)
        return resolved


def config_of(raw: msgspec.Raw) -> Config:
    """Raises TemplateSyntaxError, which a submitted workflow can't have any more."""
    data = bytes(raw)
    return _compiled(data) if len(data) <= COMPILED_BYTES_MAX else Config(data)


# Looking one up takes 0.3 µs, compiling a config with one template 15 µs.
_compiled = lru_cache(maxsize=COMPILED_MAX)(Config)


def _is_secret(reference: Reference) -> bool:
    return reference.root == SECRETS and not reference.via_nodes


def _secret_name(reference: Reference) -> str:
    """Validation says the same at submit; here it keeps all secrets together from being read."""
    if len(reference.path) != 1:
        raise TemplateSyntaxError(f"'{reference}' is not the name of one secret")
    return str(reference.path[0])


def _fixed_parts(value: Json, path: Path = ()) -> Iterator[tuple[Path, bytes]]:
    """The largest lists and objects without a template, with their places."""
    if not isinstance(value, dict | list):
        return
    if compile_tree(value).is_static:
        yield path, _encode(value)
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from _fixed_parts(item, (*path, key))
