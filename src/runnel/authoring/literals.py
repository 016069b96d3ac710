"""A list written out in a document, as the expression that the model keeps."""

import json

from runnel.authoring.fields import WRONG, Wrong
from runnel.authoring.place import Place
from runnel.core.json_types import Json
from runnel.core.templates import TemplateSyntaxError, compile_expression


def as_expression(items: list[Json], place: Place) -> str | Wrong:
    """Refused when it holds a template, or is longer than an expression may be."""
    source = _written(items)
    if "{{" in source:
        place.refuse("a template inside a list; write it all as one expression: '[a.x, b.y]'")
        return WRONG
    try:
        compile_expression(source, where=place.path)
    except TemplateSyntaxError:
        place.refuse(
            "a list too long to be written out; let a node return it, or pass it as input and "
            "write 'input.items'"
        )
        return WRONG
    return source


def _written(value: Json) -> str:
    """Recursive, but a document's depth is bounded before it is read."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_written(key)}: {_written(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)
