"""Values as text, and the bounds on texts and lists that a template builds."""

import json

from runnel.core.json_types import Json
from runnel.core.templates.failures import TemplateEvaluationError
from runnel.core.templates.limits import ITEMS_MAX, TEXT_BYTES_MAX

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)


def as_text(value: Json) -> str:
    """A string as it is, everything else as JSON."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Json) -> str:
    """Piece by piece, because `[a, a, a]` may be many times larger than what is in memory."""
    chunks: list[str] = []
    left = TEXT_BYTES_MAX
    try:
        for chunk in _encoder.iterencode(value):
            left -= len(chunk)
            if left < 0:
                raise too_long()
            chunks.append(chunk)
    except ValueError as error:
        raise TemplateEvaluationError(f"a number that JSON can't hold: {error}") from error
    return bounded_text("".join(chunks))


def bounded_text(text: str) -> str:
    if len(text) > TEXT_BYTES_MAX or size_of(text) > TEXT_BYTES_MAX:
        raise too_long()
    return text


def bounded_list(items: list[Json]) -> list[Json]:
    if len(items) > ITEMS_MAX:
        raise TemplateEvaluationError(
            f"a list of {len(items):,} items; a filter takes and makes at most {ITEMS_MAX:,}"
        )
    return items


def size_of(text: str) -> int:
    """Bytes of its UTF-8 form."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def too_long() -> TemplateEvaluationError:
    return TemplateEvaluationError(
        f"the text is longer than {TEXT_BYTES_MAX:,} bytes; pass the value on by itself, as one "
        "{{ … }} without text around it or a filter, so that it is not copied"
    )
