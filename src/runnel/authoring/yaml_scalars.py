"""Plain values of YAML: which of JSON's kinds a text is, by YAML 1.1's rules as PyYAML has them."""

import math
from functools import lru_cache

from yaml import ScalarNode
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.events import ScalarEvent
from yaml.resolver import Resolver

from runnel.core.checks.wording import quoted
from runnel.core.json_types import Json

PREFIX = "tag:yaml.org,2002:"
STRING = f"{PREFIX}str"
MERGE = f"{PREFIX}merge"

_resolver = Resolver()
_constructor = SafeConstructor()
_CONSTRUCT = {
    f"{PREFIX}null": _constructor.construct_yaml_null,
    f"{PREFIX}bool": _constructor.construct_yaml_bool,
    f"{PREFIX}int": _constructor.construct_yaml_int,
    f"{PREFIX}float": _constructor.construct_yaml_float,
}
# Texts to us; PyYAML has no value for them either.
_AS_TEXT = frozenset({STRING, MERGE, f"{PREFIX}value"})


def tag_of(event: ScalarEvent) -> str:
    if event.tag not in {None, "!"}:
        return str(event.tag)
    return _resolved(event.value) if event.tag is None and event.implicit[0] else STRING


@lru_cache(maxsize=4096)
def _resolved(value: str) -> str:
    found = _resolver.resolve(ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]  # the stubs leave it out
    return str(found)


def construct(tag: str, text: str) -> Json:
    """Raises ValueError with the problem."""
    if tag in _AS_TEXT:
        return text
    if tag == f"{PREFIX}timestamp":
        raise ValueError(
            f"{quoted(text)} is a date to YAML, which JSON does not have; put it in quotes"
        )
    read = _CONSTRUCT.get(tag)
    if read is None:
        raise ValueError(f"the tag {shown_tag(tag)} is not known here; remove it")
    try:
        value = read(ScalarNode(tag, text))
    except (ValueError, LookupError, ConstructorError):
        raise ValueError(
            f"{quoted(text)} can't be read as {shown_tag(tag)}; put it in quotes"
        ) from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no number {text}; use null, or put it in quotes")
    return value


def shown_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(PREFIX)}" if tag.startswith(PREFIX) else tag
