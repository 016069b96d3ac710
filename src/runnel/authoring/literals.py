"""A list written out in a document, as the expression that the model keeps."""

import json

from runnel.authoring.fields import WRONG, Wrong
from runnel.authoring.place import Place
from runnel.core.json_types import Json
from runnel.core.templates import TemplateSyntaxError, compile_expression


def as_expression(items: list[Json], place: Place) -> str | Wrong:
    """Refused when it holds a template, or is longer than an expression may be."""
    source = written(items)
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


def written(value: Json) -> str:
    """A value as an expression; recursive, but its depth is bounded before it comes here."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        pairs = (f"{written(key)}: {written(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)
