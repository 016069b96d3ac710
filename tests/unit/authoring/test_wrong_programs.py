"""A decorated workflow that can't be traced is refused with one sentence and its line.

The files wrong_*.txt contain the programs: code, and after `=>` the expected error.
"""

import sys
import textwrap
from pathlib import Path

import pytest

from runnel.app.decorated import workflow
from runnel.authoring.decorators.task import task
from runnel.authoring.python_files import load_workflow
from runnel.authoring.python_paths import parse_python_path
from runnel.errors import InputError, InvalidWorkflowError, TraceError

PREAMBLE = """\
import collections.abc, json, math, sys; flow_tasks = sys.modules[__name__]
import runnel
from runnel import task, workflow
def as_list(page): return page if isinstance(page, list) else [page]
@task
def fetch(url: str) -> dict: ...
def is_map(page): return isinstance(page, collections.abc.Mapping)
@task
def parse(page, *, depth=1): ...

@task
def merge(*pages): ...

@workflow
def other(url: str):
    return fetch(url)
def hidden(page): ...
def plain(page):
    return [word for word in page]
gone = task(hidden); del hidden
@workflow
def flow(url: str, n: int = 3):
"""


def programs(name: str) -> list[tuple[str, str]]:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    blocks = [block.partition("\n=> ") for block in text.split("\n\n")]
    return [(code, sentence.rstrip().replace("\n   ", "\n")) for code, _, sentence in blocks]


BODIES = programs("wrong_bodies.txt")


def test_the_table_of_wrong_programs_is_not_empty() -> None:
    assert len(BODIES) > 50


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test in its own folder, without the module `flow` of an earlier test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "flow", raising=False)


def load(text: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.py"
    path.write_text(text)
    file = parse_python_path("flow.py:flow" if "\ndef flow" in text else "flow.py")
    assert file is not None
    load_workflow(file).to_workflow()


@pytest.mark.parametrize(("body", "sentence"), BODIES)
def test_a_body_that_cannot_be_traced_is_refused_with_its_line(
    body: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidWorkflowError) as caught:
        load(PREAMBLE + textwrap.indent(body, "    ") + "\n", tmp_path)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(("text", "sentence"), programs("wrong_files.txt"))
def test_a_file_without_one_workflow_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkflowError) as caught:
        load(text, tmp_path)

    assert caught.value.problems == (sentence,)


@pytest.mark.parametrize(("text", "sentence"), programs("wrong_decorators.txt"))
def test_a_decorator_refuses_a_function_or_option_that_it_cannot_use(
    text: str, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        exec(text, {"task": task, "workflow": workflow, "__name__": "flow"})

    assert str(caught.value) == sentence


def test_a_trace_error_has_file_line_and_statement(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        load(PREAMBLE + "    if fetch(url):\n        parse(url)\n", tmp_path)

    line = PREAMBLE.count("\n") + 1
    assert (caught.value.file, caught.value.line) == ("flow.py", line)
    assert caught.value.statement == "if fetch(url):"


NO_JSON = "which JSON can't represent; use a plain type, a TypedDict or a dataclass"
NO_NAME = (
    "name 'Missing' is not defined; import their names at run time, not only for type checkers"
)


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        ("'Missing'", f"workflow flow: the type hints can't be evaluated: {NO_NAME}"),
        ("None | range", f"workflow flow: the parameter 'a' has type None | range, {NO_JSON}"),
        ("Pattern", f"workflow flow: the parameter 'a' has type Pattern, {NO_JSON}"),
    ],
)
def test_a_type_hint_that_json_cannot_represent_is_refused(
    hint: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        load(
            "from re import Pattern\nfrom runnel import task, workflow\n@task\ndef one(a): ...\n"
            f"@workflow\ndef flow(a: {hint}): return one(a)\n",
            tmp_path,
        )

    assert str(caught.value) == sentence


def test_a_file_with_the_name_of_another_module_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("x = 1")
    file = parse_python_path(str(path))
    assert file is not None

    with pytest.raises(InvalidWorkflowError, match="the module name 'json' is already taken by"):
        load_workflow(file)


def test_a_file_whose_name_is_not_a_module_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my-flow.py"
    path.write_text("x = 1")
    file = parse_python_path(str(path))
    assert file is not None

    with pytest.raises(
        InvalidWorkflowError, match="'my-flow', which is not a valid module name; rename"
    ):
        load_workflow(file)
