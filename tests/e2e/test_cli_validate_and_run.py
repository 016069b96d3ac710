"""What `runnel validate` accepts, `runnel run` runs; what it refuses, `run` refuses too."""

import json
from pathlib import Path

import pytest

from runnel.core.values import Json
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

LIST = {"id": "a", "handler": "output", "for_each": "[10, 20]", "config": {"v": "{{ item }}"}}
OBJECT = {"id": "a", "handler": "output", "config": {"1": "one"}}
NUMBER = {"id": "1", "handler": "output", "config": {"x": 7}}
NUMBER_FIRST = {"id": "2a", "handler": "output", "config": {"x": 7}}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def write_workflow(program: Program, **fields: Json) -> str:
    (program.folder / "flow.json").write_text(json.dumps({"name": "flow", **fields}))
    return "flow.json"


@pytest.mark.parametrize(
    ("first", "template", "expected"),
    [
        (LIST, "{{ a.1.v }}", 20),
        (LIST, "{{ a[1].v }}", 20),
        (LIST, "{{ a.1 }}", {"v": 20}),
        (OBJECT, "{{ a.1 }}", "one"),
        (OBJECT, "{{ a['1'] }}", "one"),
        (NUMBER, "{{ nodes['1'].x }}", 7),
        (NUMBER, "{{ nodes[1].x }}", 7),
        (NUMBER, "{{ 1.x }}", 7),
        (NUMBER_FIRST, "{{ nodes['2a'].x }}", 7),
    ],
)
def test_a_number_in_a_path_is_valid_and_runs(
    program: Program, first: Json, template: str, expected: Json
) -> None:
    reader = {"id": "b", "handler": "output", "config": {"v": template}}
    file = write_workflow(program, nodes=[first, reader], output="{{ b.v }}")

    checked = program.run("validate", file)
    document = program.documents("run", file)[0]

    assert (checked.returncode, checked.stderr) == (0, "")
    assert document["output"] == expected


@pytest.mark.parametrize(
    ("first", "template", "problem"),
    [
        (NUMBER_FIRST, "{{ 2a.x }}", "the id '2a' is not a plain name; write nodes['2a']"),
        ({**NUMBER, "id": 1}, "{{ nodes[1].x }}", "nodes[0].id: expected a printable text"),
        (NUMBER, "{{ nodes[2].x }}", "2"),
    ],
)
def test_an_invalid_number_is_refused_by_both(
    program: Program, first: Json, template: str, problem: str
) -> None:
    reader = {"id": "b", "handler": "output", "config": {"v": template}}
    file = write_workflow(program, nodes=[first, reader])

    checked, done = program.run("validate", file), program.run("run", file)

    assert (checked.returncode, done.returncode) == (2, 2)
    assert problem in checked.stderr
    assert checked.stderr == done.stderr


@pytest.mark.parametrize(
    ("tag", "warning"),
    [
        (
            "user-{{ input.user }}",
            (
                "warning: node 'a': rate_limits has no entry 'user-{{ input.user }}', so this "
                "resource_tag limits nothing; it has: user-ada; the entry of a template has the "
                "text of the template, and each value its own rate\n"
            ),
        ),
        (
            "user-adda",
            (
                "warning: node 'a': rate_limits has no entry 'user-adda', so this resource_tag "
                "limits nothing (did you mean 'user-ada'?)\n"
            ),
        ),
        ("user-ada", ""),
    ],
)
def test_a_resource_tag_beside_limits_of_other_names_is_a_warning(
    program: Program, tag: str, warning: str
) -> None:
    node = {"id": "a", "handler": "output", "resource_tag": tag}
    limits = {"user-ada": {"rate_per_second": 100}}
    file = write_workflow(program, nodes=[node], rate_limits=limits)

    checked = program.run("validate", file)
    done = program.run("run", file, "-i", "user=ada")

    assert (checked.returncode, checked.stderr) == (0, warning)
    assert done.returncode == 0
    assert done.stderr.startswith(warning)


def test_a_tag_without_any_limit_in_the_workflow_is_not_a_warning(program: Program) -> None:
    node = {"id": "a", "handler": "output", "resource_tag": "of the workers"}

    assert program.run("validate", write_workflow(program, nodes=[node])).stderr == ""
