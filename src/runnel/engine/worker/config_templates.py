"""Compiles the templates of a task: its config, its cache key and its resource tag."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import msgspec

from runnel.core.templates.errors import (
    TemplateSyntaxError,
)
from runnel.core.templates.nodes import TemplateReference, TemplateScope
from runnel.core.templates.template import TemplateTree, compile_tree
from runnel.core.values import Json

COMPILED_CONFIGS_MAX = 1024


COMPILED_CONFIG_BYTES_MAX = 64 * 1024


SECRETS_ROOT = "secrets"


ConfigPath: TypeAlias = tuple[str | int, ...]


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class CompiledConfig:
    """The config of a task, or another field, with compiled templates. Errors name the field.

    `resolve` returns new objects each time, because a handler may modify them.

    `secrets` holds the names of the secrets that the templates use.
    """

    __slots__ = ("_data", "_static_parts", "_tree", "roots", "secrets")

    def __init__(self, data: bytes, field: str = "config") -> None:
        tree = compile_tree(_decode(data), where=field)
        self._data = data
        self._tree: TemplateTree | None = None if tree.is_static else tree
        # `TemplateTree.resolve` returns the same object each time for a part without a template.
        # `resolve` replaces these parts with newly decoded ones.
        self._static_parts = () if tree.is_static else tuple(_find_static_parts(tree.value))
        self.roots = frozenset(reference.root for reference in tree.references)
        self.secrets = frozenset(map(_get_secret_name, filter(_is_secret, tree.references)))

    @property
    def template(self) -> Json:
        """The config as the workflow contains it, with unresolved templates."""
        return _decode(self._data)

    def resolve(self, scope: TemplateScope) -> Json:
        """Returns the config with all templates resolved.

        Raises a TemplateError that names the field and its problem.
        """
        if self._tree is None:
            return _decode(self._data)
        resolved = self._tree.resolve(scope)
        for path, data in self._static_parts:
            holder = resolved
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = _decode(data)
        return resolved


def compile_config(raw: bytes | msgspec.Raw, *, field: str = "config") -> CompiledConfig:
    """Returns the compiled config or other field, from a cache if it is small.

    Raises TemplateSyntaxError for an invalid template, which validation at submit excludes.
    """
    data = bytes(raw)
    compile_ = _compile_cached if len(data) <= COMPILED_CONFIG_BYTES_MAX else CompiledConfig
    return compile_(data, field)


# A lookup takes 0.3 µs; compiling a config with one template takes 15 µs.
_compile_cached = lru_cache(maxsize=COMPILED_CONFIGS_MAX)(CompiledConfig)


def _is_secret(reference: TemplateReference) -> bool:
    return reference.root == SECRETS_ROOT and not reference.via_nodes


def _get_secret_name(reference: TemplateReference) -> str:
    """Returns the name of the secret.

    Raises TemplateSyntaxError unless the reference names one secret.

    Validation at submit makes the same check. This check prevents a task from reading all secrets
    at once.
    """
    if len(reference.path) != 1:
        raise TemplateSyntaxError(f"'{reference}' is not the name of one secret")
    return str(reference.path[0])


def _find_static_parts(value: Json, path: ConfigPath = ()) -> Iterator[tuple[ConfigPath, bytes]]:
    """Yields each list or object that contains no template, encoded, with its path.

    Does not yield lists or objects inside one that it has yielded.
    """
    if not isinstance(value, dict | list):
        return
    if compile_tree(value).is_static:
        yield path, _encode(value)
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from _find_static_parts(item, (*path, key))
