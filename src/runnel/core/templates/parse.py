"""From the source of one expression to its node: a plain path here, all else through Jinja."""

import re
from functools import lru_cache

import msgspec

from runnel.core.templates.failures import TemplateSyntaxError
from runnel.core.templates.limits import CACHED_SOURCES
from runnel.core.templates.nodes import Node, Path
from runnel.core.templates.references import Key, Reference, reference_to
from runnel.core.templates.scan import check_expression, check_size

# Words with which a path can't begin: `not[0]` negates a list.
NO_ROOTS = frozenset({"not", "true", "false", "none", "True", "False", "None"})

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_INDEX = r"0|[1-9][0-9]{0,8}"
_QUOTED = r"'[ !#-&(-\[\]-~]*'|\"[ !#-&(-\[\]-~]*\""
_STEP = re.compile(rf"\.({_NAME})|\.({_INDEX})|\[(-?(?:{_INDEX}))\]|\[({_QUOTED})\]")
_PATH = re.compile(rf"({_NAME})((?:{_STEP.pattern})*)")


class Parsed(msgspec.Struct, frozen=True):
    node: Node
    references: frozenset[Reference]


@lru_cache(maxsize=CACHED_SOURCES)
def parse(source: str) -> Parsed:
    """Raises TemplateSyntaxError for everything that is not one expression of the language."""
    check_size(source)
    plain = parse_path(source)
    if plain is not None:
        return plain
    if not source.strip():
        raise TemplateSyntaxError("it is empty; expected an expression such as fetch.result")
    check_expression(source)
    # Importing Jinja takes about 60 ms, more than the rest of a cold start: only who needs it pays.
    from runnel.core.templates.jinja_syntax import parse_with_jinja

    node, references = parse_with_jinja(source)
    return Parsed(node=node, references=references)


def parse_path(source: str) -> Parsed | None:
    """The way of most templates, `fetch.result[0].name`; None leaves it to Jinja."""
    found = _PATH.fullmatch(source)
    if found is None or found[1] in NO_ROOTS:
        return None
    reference = reference_to(found[1], tuple(map(_key, _STEP.finditer(found[2]))))
    return Parsed(node=Path(reference), references=frozenset({reference}))


def _key(step: re.Match[str]) -> Key:
    name, index, bracketed_index, quoted = step.groups()
    if name is not None:
        return str(name)
    return str(quoted[1:-1]) if quoted is not None else int(index or bracketed_index)
