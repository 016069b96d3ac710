"""Dead letters in pages and by the many: listed, retried and purged by what they have in common."""

import base64
import binascii
from collections.abc import AsyncIterator, Mapping, Sequence
from math import inf, isfinite, nextafter

import msgspec

from runnel.client import Client
from runnel.core.effects import DeadLetter
from runnel.core.ids import NO_ITEM, ExecutionId, root_of
from runnel.core.json_types import Json
from runnel.dead_letters import all_letters, digest_of, name_of, retry_letters
from runnel.errors import InputError
from runnel.operations.queues import queue_name
from runnel.ports.archive import Archive, LetterFilter
from runnel.views import moment


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the letters of one execution: a rerun, or why there is none."""

    root: ExecutionId
    letters: Sequence[DeadLetter]
    execution_id: ExecutionId | None = None
    error: InputError | None = None


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: the time of its last letter, and which of that time it was."""

    at: float
    digest: str


def letter_document(letter: DeadLetter) -> dict[str, Json]:
    token = letter.token
    return {
        "name": name_of(letter),
        "execution_id": token.execution_id,
        "workflow": letter.workflow,
        "node": token.node_id,
        "item": None if token.item == NO_ITEM else token.item,
        "attempts": token.attempt,
        "queue": queue_name(letter.queue),
        "handler": letter.handler,
        "reason": letter.reason,
        "error": str(letter.error),
        "traceback": letter.error.traceback,
        "config": msgspec.json.decode(letter.config),
        "rejected_at": moment(letter.rejected_at),
    }


async def letter_page(
    archive: Archive, wanted: LetterFilter, *, after: str | None
) -> tuple[Sequence[DeadLetter], str | None]:
    """A page, newest first, and the text that the next one comes `after`; None behind the last.

    Purges between two pages skip nothing. Raises InputError for a text that is none of ours.
    """
    if after is None:
        found = await archive.list_dead_letters(wanted)
    else:
        found = await _page_behind(archive, wanted, _place_in(after))
    return found, _text_of(found[-1]) if len(found) == wanted.limit else None


async def letters_by_root(
    archive: Archive, wanted: LetterFilter
) -> Mapping[ExecutionId, Sequence[DeadLetter]]:
    """For each execution that has a wanted letter all of its letters: a rerun retries them
    together. The one with the oldest letter first.
    """
    roots: dict[ExecutionId, None] = {}
    found = [each async for each in all_letters(archive, LetterFilter())]
    trees: dict[ExecutionId, list[DeadLetter]] = {}
    for letter in reversed(found):
        trees.setdefault(root_of(letter.token.execution_id), []).append(letter)
    chosen = [each async for each in all_letters(archive, wanted)]
    for letter in reversed(chosen):
        roots[root_of(letter.token.execution_id)] = None
    return {root: trees[root] for root in roots if root in trees}


async def retry_each(
    client: Client,
    archive: Archive,
    trees: Mapping[ExecutionId, Sequence[DeadLetter]],
    *,
    configs: Mapping[str, Json] | None = None,
) -> AsyncIterator[Retried]:
    """One after the other; what can't be retried is told, and the others are."""
    for root, letters in trees.items():
        try:
            new_id = await retry_letters(client, archive, letters, configs=configs)
        except InputError as error:
            yield Retried(root=root, letters=letters, error=error)
        else:
            yield Retried(root=root, letters=letters, execution_id=new_id)


async def _page_behind(
    archive: Archive, wanted: LetterFilter, place: _Place
) -> Sequence[DeadLetter]:
    """When its last letter is gone, those of the same moment come again rather than never."""
    before = min(wanted.before, nextafter(place.at, inf))
    rest = msgspec.structs.replace(wanted, before=before)
    found: list[DeadLetter] = []
    async for letter in all_letters(archive, rest):
        if letter.rejected_at == place.at and digest_of(letter) == place.digest:
            found.clear()
            continue
        if letter.rejected_at < place.at and len(found) >= wanted.limit:
            break
        found.append(letter)
    return found[: wanted.limit]


def _text_of(letter: DeadLetter) -> str:
    place = _Place(letter.rejected_at, digest_of(letter))
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _place_in(text: str) -> _Place:
    try:
        data = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        place = msgspec.json.decode(data, type=_Place)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise _odd(text) from error
    if not isfinite(place.at):
        raise _odd(text)
    return place


def _odd(text: str) -> InputError:
    shown = text.encode(errors="backslashreplace").decode()[:40]
    return InputError(f"after: expected `next` of the previous page, got '{shown}'")
