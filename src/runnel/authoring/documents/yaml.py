"""Parses and writes YAML; imported only when the first YAML document is read or written.

The parser builds values from PyYAML's events, without recursion, so that every problem has a line
and column. The parser refuses input that PyYAML accepts silently: duplicate keys, dates, keys that
are not texts, a second document, and aliases that expand to more than 10 MB.
"""

import math
import re
from collections.abc import Iterator
from functools import lru_cache

import yaml
from yaml import ScalarNode, events
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.events import ScalarEvent
from yaml.resolver import Resolver

from runnel.core.message_text import describe_value, quote_name
from runnel.core.validation.checks import DEPTH_MAX, is_finite_number
from runnel.core.values import Json
from runnel.errors import InvalidWorkflowError

# Scalars: the JSON type of a text follows from the YAML 1.1 rules of PyYAML.

TAG_PREFIX = "tag:yaml.org,2002:"
STRING_TAG = f"{TAG_PREFIX}str"
MERGE_TAG = f"{TAG_PREFIX}merge"

_resolver = Resolver()
_constructor = SafeConstructor()
_CONSTRUCTORS = {
    f"{TAG_PREFIX}null": _constructor.construct_yaml_null,
    f"{TAG_PREFIX}bool": _constructor.construct_yaml_bool,
    f"{TAG_PREFIX}int": _constructor.construct_yaml_int,
    f"{TAG_PREFIX}float": _constructor.construct_yaml_float,
}
# Scalars with these tags are text, so they need no constructor of PyYAML.
_TEXT_TAGS = frozenset({STRING_TAG, MERGE_TAG, f"{TAG_PREFIX}value"})


def resolve_tag(event: ScalarEvent) -> str:
    if event.tag not in {None, "!"}:
        return str(event.tag)
    return (
        _resolve_implicit_tag(event.value)
        if event.tag is None and event.implicit[0]
        else STRING_TAG
    )


@lru_cache(maxsize=4096)
def _resolve_implicit_tag(value: str) -> str:
    tag = _resolver.resolve(ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]  # the stubs leave it out
    return str(tag)


def construct_scalar(tag: str, text: str) -> Json:
    """Returns the JSON value of a scalar; raises ValueError with the problem."""
    if tag in _TEXT_TAGS:
        return text
    if tag == f"{TAG_PREFIX}timestamp":
        raise ValueError(
            f"{quote_name(text)} is a date in YAML, but JSON has no dates; put it in quotes"
        )
    read = _CONSTRUCTORS.get(tag)
    if read is None:
        raise ValueError(f"the tag {format_tag(tag)} is not supported; remove it")
    try:
        value = read(ScalarNode(tag, text))
    except (ValueError, LookupError, ConstructorError):
        raise ValueError(
            f"{quote_name(text)} can't be read as {format_tag(tag)}; put it in quotes"
        ) from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no number {text}; use null, or put it in quotes")
    return value


def format_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(TAG_PREFIX)}" if tag.startswith(TAG_PREFIX) else tag


EXPANDED_CHARS_MAX = 10_000_000


class UnsupportedYamlError(Exception):
    """The YAML text has a problem at the line and column of the event."""

    def __init__(self, event: events.Event, problem: str) -> None:
        mark = event.start_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        super().__init__(f"{where}{problem}")


class _NoKey:
    """The type of NO_KEY: the next key of an object has not been read yet."""


class _MergeKey:
    """The type of MERGE_KEY: the key is `<<`, whose value is merged into the object."""


NO_KEY = _NoKey()
MERGE_KEY = _MergeKey()


class _OpenCollection:
    """A list or an object whose end event has not been read yet."""

    __slots__ = ("anchor", "key", "merged", "start", "value")

    def __init__(self, value: list[Json] | dict[str, Json], anchor: str | None, start: int) -> None:
        self.value = value
        self.anchor = anchor
        self.start = start
        self.key: str | _NoKey | _MergeKey = NO_KEY
        self.merged: list[dict[str, Json]] = []


class YamlBuilder:
    """Builds a JSON value from parser events.

    After the last event, `root` is the value; None for an empty document.
    """

    def __init__(self, text: str) -> None:
        self.root: Json = None
        self._text = text
        self._frames: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._chars = 0
        self._has_document = False

    def handle_event(self, event: events.Event) -> None:
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
            raise UnsupportedYamlError(
                event, "a second document begins here; expected one workflow per file"
            )
        self._has_document = True

    def _scalar(self, event: events.ScalarEvent) -> None:
        self._count_chars(len(event.value) + 1, event)
        tag = resolve_tag(event)
        frame = self._frames[-1] if self._frames else None
        if tag == MERGE_TAG and frame is not None and _is_at_key(frame):
            frame.key = MERGE_KEY
            return
        try:
            value = construct_scalar(tag, event.value)
        except ValueError as error:
            raise UnsupportedYamlError(event, str(error)) from error
        if event.anchor is not None:
            self._anchors[event.anchor] = value, len(event.value) + 1
        self._add(value, event)

    def _open(self, event: events.SequenceStartEvent | events.MappingStartEvent) -> None:
        is_list = isinstance(event, events.SequenceStartEvent)
        if event.tag not in {None, "!", f"{TAG_PREFIX}{'seq' if is_list else 'map'}"}:
            raise UnsupportedYamlError(
                event, f"the tag {format_tag(event.tag)} is not supported; remove it"
            )
        if self._frames and _is_at_key(self._frames[-1]):
            raise UnsupportedYamlError(event, self._describe_wrong_key(event, is_list=is_list))
        if len(self._frames) >= DEPTH_MAX:
            raise UnsupportedYamlError(
                event, f"nested too deeply: at most {DEPTH_MAX} levels are allowed"
            )
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._frames.append(_OpenCollection([] if is_list else {}, event.anchor, self._chars))
        self._count_chars(1, event)

    def _describe_wrong_key(self, event: events.Event, *, is_list: bool) -> str:
        if self._read_source(event, before=1).startswith("{{"):
            return "a template must be in quotes, as in '{{ fetch.result }}'"
        return f"a key must be a text, got {'a list' if is_list else 'an object'}"

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
        anchored = self._anchors.get(name)
        if anchored is None:
            raise UnsupportedYamlError(
                event, f"the alias *{name} needs a complete anchor &{name} before it"
            )
        value, chars = anchored
        self._count_chars(chars, event)
        self._add(value, event)

    def _add(self, value: Json, event: events.Event) -> None:
        if not self._frames:
            self.root = value
            return
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is NO_KEY:
            frame.key = self._check_key(frame.value, value, event)
        elif frame.key is MERGE_KEY:
            frame.merged += _list_mergeable_objects(value, event)
            frame.key = NO_KEY
        else:
            frame.value[str(frame.key)] = value
            frame.key = NO_KEY

    def _check_key(self, mapping: dict[str, Json], key: Json, event: events.Event) -> str:
        if not isinstance(key, str):
            kind = "a number" if is_finite_number(key) else describe_value(key)
            text = self._read_source(event)
            raise UnsupportedYamlError(event, f"the key {text} is {kind} in YAML; put it in quotes")
        if key in mapping:
            raise UnsupportedYamlError(
                event, f"the key {quote_name(key)} is given twice in one object; keep one"
            )
        return key

    def _read_source(self, event: events.Event, *, before: int = 0) -> str:
        """Returns the source text of an event, with `before` characters in front of it."""
        if event.start_mark is None or event.end_mark is None:
            return ""
        return self._text[event.start_mark.index - before : event.end_mark.index]

    def _count_chars(self, chars: int, event: events.Event) -> None:
        self._chars += chars
        if self._chars > EXPANDED_CHARS_MAX:
            raise UnsupportedYamlError(
                event,
                "the document is larger than 10 MB with its aliases expanded; use fewer aliases",
            )


def _is_at_key(frame: _OpenCollection) -> bool:
    return isinstance(frame.value, dict) and frame.key is NO_KEY


def _list_mergeable_objects(value: Json, event: events.Event) -> list[dict[str, Json]]:
    """Returns the objects that `<<` merges. An earlier object takes precedence."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(mapping, dict) for mapping in mappings):
        raise UnsupportedYamlError(
            event, f"'<<': expected an alias of an object, got {describe_value(value)}"
        )
    return mappings


# libyaml, if installed, is ten times faster than the parser in Python.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, *, source: str) -> Json:
    """Decodes YAML; raises InvalidWorkflowError with line and column."""
    builder = YamlBuilder(text)
    try:
        for event in _iterate_events(text):
            builder.handle_event(event)
    except UnsupportedYamlError as error:
        problem = str(error)
    except yaml.MarkedYAMLError as error:
        problem = _describe_syntax_error(text, error)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        problem = _describe_unreadable_text(text, error)
    else:
        return builder.root
    raise InvalidWorkflowError([problem], source=source)


def _iterate_events(text: str) -> Iterator[events.Event]:
    loader = _Loader(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


_SYNTAX_HINTS = {
    "mapping values are not allowed": "; put a text with ': ' in it in quotes",
    "did not find expected ',' or": "; a bracket before this is not closed",
    "unexpected end of stream": "; a quote before this is not closed",
    "did not find expected key": "; check the indentation, and the quotes before this",
    "'%'": "; put a text that begins with % in quotes",
    "'@'": "; put a text that begins with @ in quotes",
    "'`'": "; put a text that begins with ` in quotes",
}


def _describe_syntax_error(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"not YAML: {error.problem}"
    where = f"line {mark.line + 1}, column {mark.column + 1}: "
    lines = text.split("\n", mark.line + 1)
    character = lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
    problem = error.problem or "the text can't be read"
    if character == "\t" or "tab character" in problem:
        return f"{where}found a tab, but YAML allows only spaces; indent with spaces"
    if "that cannot start any token" in problem:
        problem = f"found {character!r} where a value was expected"
    hint = next((hint for fragment, hint in _SYNTAX_HINTS.items() if fragment in problem), "")
    return f"{where}not YAML: {problem}{hint}"


def _describe_unreadable_text(text: str, error: Exception) -> str:
    match = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if match is None:
        return f"not YAML: {str(error).splitlines()[0]}"
    line = text.count("\n", 0, match.start()) + 1
    column = match.start() - text.rfind("\n", 0, match.start())
    code = f"#x{ord(match[0]):04x}"
    return f"line {line}, column {column}: the character {code} is not allowed; remove it"


# Writing a document as readable YAML.

LINE_WIDTH = 100
# YAML treats these characters as line breaks, and reads them as spaces unless they are escaped.
_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")


class _Dumper(yaml.SafeDumper):
    """Writes lists indented below their key, and repeats equal values instead of using aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002  # as PyYAML calls it
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if _LINE_BREAKS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(document: Json) -> str:
    """Writes YAML that parses to the same document, with keys in the same order."""
    return str(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_WIDTH)
    )
