"""Texts of others in messages: their beginning, and a mark where they were cut.

By the mark, whoever hides secrets knows that half of one may stand before it.
"""

CUT = "…"


def short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - len(CUT)] + CUT
