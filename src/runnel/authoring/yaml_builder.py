"""Builds one JSON value from the events of a YAML parser, and refuses what JSON can't hold."""

from yaml import events

from runnel.authoring.yaml_scalars import MERGE, PREFIX, construct, shown_tag, tag_of
from runnel.core.checks.json_values import DEPTH_MAX
from runnel.core.checks.values import is_number
from runnel.core.checks.wording import quoted, shown
from runnel.core.json_types import Json

EXPANDED_CHARS_MAX = 10_000_000


class RefusedError(Exception):
    """A problem, with the line and column where the event begins."""

    def __init__(self, event: events.Event, problem: str) -> None:
        mark = event.start_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        super().__init__(f"{where}{problem}")


class _NoKey:
    """Stands for the key of an object until it has been read."""


class _Merge:
    """Stands for the key `<<`, whose value is merged into the object."""


NO_KEY = _NoKey()
MERGE_KEY = _Merge()


class _Frame:
    """A list or an object that is still open."""

    __slots__ = ("anchor", "key", "merged", "start", "value")

    def __init__(self, value: list[Json] | dict[str, Json], anchor: str | None, start: int) -> None:
        self.value = value
        self.anchor = anchor
        self.start = start
        self.key: str | _NoKey | _Merge = NO_KEY
        self.merged: list[dict[str, Json]] = []


class Builder:
    """`root` is the value once all events have been taken; None for an empty document."""

    def __init__(self, text: str) -> None:
        self.root: Json = None
        self._text = text
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._chars = 0
        self._has_document = False

    def take(self, event: events.Event) -> None:
        match event:
            case events.ScalarEvent():
                self._scalar(event)
            case events.SequenceStartEvent() | events.MappingStartEvent():
                self._open(event)
            case events.SequenceEndEvent() | events.MappingEndEvent():
                self._close(event)
            case events.AliasEvent():
                self._alias(event)
            case events.DocumentStartEvent():
                self._document(event)
            case _:
                return

    def _document(self, event: events.Event) -> None:
        if self._has_document:
            raise RefusedError(
                event, "a second document begins here; expected one workflow in a file"
            )
        self._has_document = True

    def _scalar(self, event: events.ScalarEvent) -> None:
        self._spend(len(event.value) + 1, event)
        tag = tag_of(event)
        frame = self._frames[-1] if self._frames else None
        if tag == MERGE and frame is not None and _is_at_key(frame):
            frame.key = MERGE_KEY
            return
        try:
            value = construct(tag, event.value)
        except ValueError as error:
            raise RefusedError(event, str(error)) from error
        if event.anchor is not None:
            self._anchors[event.anchor] = value, len(event.value) + 1
        self._add(value, event)

    def _open(self, event: events.SequenceStartEvent | events.MappingStartEvent) -> None:
        is_list = isinstance(event, events.SequenceStartEvent)
        if event.tag not in {None, "!", f"{PREFIX}{'seq' if is_list else 'map'}"}:
            raise RefusedError(
                event, f"the tag {shown_tag(event.tag)} is not known here; remove it"
            )
        if self._frames and _is_at_key(self._frames[-1]):
            raise RefusedError(event, self._wrong_key(event, is_list=is_list))
        if len(self._frames) >= DEPTH_MAX:
            raise RefusedError(event, f"nested too deeply: at most {DEPTH_MAX} levels")
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._frames.append(_Frame([] if is_list else {}, event.anchor, self._chars))
        self._spend(1, event)

    def _wrong_key(self, event: events.Event, *, is_list: bool) -> str:
        if self._written(event, before=1).startswith("{{"):
            return "a template must be in quotes, as in '{{ fetch.result }}'"
        return f"{'a list' if is_list else 'an object'} as a key; expected a text"

    def _close(self, event: events.Event) -> None:
        frame = self._frames.pop()
        if isinstance(frame.value, dict):
            for merged in frame.merged:
                frame.value = {**merged, **frame.value}
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.value, self._chars - frame.start
        self._add(frame.value, event)

    def _alias(self, event: events.AliasEvent) -> None:
        name = event.anchor or ""
        found = self._anchors.get(name)
        if found is None:
            raise RefusedError(event, f"the alias *{name} has no complete anchor &{name} before it")
        value, chars = found
        self._spend(chars, event)
        self._add(value, event)

    def _add(self, value: Json, event: events.Event) -> None:
        if not self._frames:
            self.root = value
            return
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is NO_KEY:
            frame.key = self._checked_key(frame.value, value, event)
        elif frame.key is MERGE_KEY:
            frame.merged += _mergeable(value, event)
            frame.key = NO_KEY
        else:
            frame.value[str(frame.key)] = value
            frame.key = NO_KEY

    def _checked_key(self, found: dict[str, Json], key: Json, event: events.Event) -> str:
        if not isinstance(key, str):
            what = "a number" if is_number(key) else shown(key)
            text = self._written(event)
            raise RefusedError(event, f"the key {text} is {what} to YAML; put it in quotes")
        if key in found:
            raise RefusedError(
                event, f"the key {quoted(key)} is given twice in one object; keep one"
            )
        return key

    def _written(self, event: events.Event, *, before: int = 0) -> str:
        """The text that an event was made from, and so many characters before it."""
        if event.start_mark is None or event.end_mark is None:
            return ""
        return self._text[event.start_mark.index - before : event.end_mark.index]

    def _spend(self, chars: int, event: events.Event) -> None:
        self._chars += chars
        if self._chars > EXPANDED_CHARS_MAX:
            raise RefusedError(
                event, "with its aliases written out it is larger than 10 MB; use fewer"
            )


def _is_at_key(frame: _Frame) -> bool:
    return isinstance(frame.value, dict) and frame.key is NO_KEY


def _mergeable(value: Json, event: events.Event) -> list[dict[str, Json]]:
    """The objects in order: each adds only what those before it, and the object itself, lack."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise RefusedError(
            event, f"'<<' merges objects, got {shown(value)}; expected an alias of one"
        )
    return found
