"""Which dead letters are wanted, for stores that have to look at each of them."""

from collections.abc import Iterable

import msgspec

from runnel.core.effects import DeadLetter
from runnel.ports.archive import LetterFilter

encode_letter = msgspec.json.Encoder().encode


def is_wanted(letter: DeadLetter, wanted: LetterFilter) -> bool:
    """Whatever page it is on."""
    return (
        wanted.queue in (None, letter.queue)
        and wanted.workflow in (None, letter.workflow)
        and letter.token.execution_id.startswith(wanted.execution)
        and letter.rejected_at < wanted.before
    )


def page_of(letters: Iterable[DeadLetter], wanted: LetterFilter) -> list[DeadLetter]:
    found = [(place_of(letter), letter) for letter in letters if is_wanted(letter, wanted)]
    if wanted.after is not None:
        end = place_of(wanted.after)
        found = [each for each in found if each[0] < end]
    found.sort(key=lambda each: each[0], reverse=True)
    return [letter for _, letter in found[: wanted.limit]]


def place_of(letter: DeadLetter) -> tuple[float, bytes]:
    """Where it stands in a list, with the newest last."""
    return letter.rejected_at, encode_letter(letter)
