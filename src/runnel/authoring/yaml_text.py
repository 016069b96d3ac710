"""YAML into JSON values, built from the parser's events: no recursion, and every place is known.

What PyYAML would do in silence is refused: a key given twice, a date, a key that is no text, a
second document, aliases that unfold into more than a document may be. Imported late by `files.py`.
"""

from collections.abc import Iterator

import yaml
from yaml import events

from runnel.authoring.yaml_builder import Builder, RefusedError
from runnel.core.json_types import Json
from runnel.errors import InvalidWorkflowError

# libyaml, where it is there, is ten times faster than the parser in Python.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, *, source: str) -> Json:
    """Raises InvalidWorkflowError with line and column."""
    builder = Builder(text)
    try:
        for event in _events(text):
            builder.take(event)
    except RefusedError as error:
        problem = str(error)
    except yaml.MarkedYAMLError as error:
        problem = _not_yaml(text, error)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        problem = _unreadable(text, error)
    else:
        return builder.root
    raise InvalidWorkflowError([problem], source=source)


def _events(text: str) -> Iterator[events.Event]:
    loader = _Loader(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


_HINTS = {
    "mapping values are not allowed": "; put a text with ': ' in it in quotes",
    "did not find expected ',' or": "; a bracket before this is not closed",
    "unexpected end of stream": "; a quote before this is not closed",
    "did not find expected key": "; check the indentation, and the quotes before this",
    "'%'": "; put a text that begins with % in quotes",
    "'@'": "; put a text that begins with @ in quotes",
    "'`'": "; put a text that begins with ` in quotes",
}


def _not_yaml(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"not YAML: {error.problem}"
    where = f"line {mark.line + 1}, column {mark.column + 1}: "
    lines = text.split("\n", mark.line + 1)
    here = lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
    problem = error.problem or "it can't be read"
    if here == "\t" or "tab character" in problem:
        return f"{where}a tab where YAML allows only spaces; indent with spaces"
    if "that cannot start any token" in problem:
        problem = f"found {here!r} where a value was expected"
    hint = next((hint for words, hint in _HINTS.items() if words in problem), "")
    return f"{where}not YAML: {problem}{hint}"


def _unreadable(text: str, error: Exception) -> str:
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if found is None:
        return f"not YAML: {str(error).splitlines()[0]}"
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - text.rfind("\n", 0, found.start())
    code = f"#x{ord(found[0]):04x}"
    return f"line {line}, column {column}: the character {code} is not allowed; remove it"
