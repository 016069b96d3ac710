"""Loading workflow files, and the errors for files that can't be read."""

from pathlib import Path

import pytest

from runnel.authoring.documents import load_file
from runnel.core.workflow import Workflow
from runnel.errors import InvalidWorkflowError
from tests.unit.authoring.samples import node, of_a, workflow
from tests.workflow_text import load_text

YAML = of_a()
JSON = '{"name": "w", "nodes": [{"id": "a", "handler": "h"}]}'


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(InvalidWorkflowError) as caught:
        load_file(path)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.yaml", YAML),
        ("w.YML", YAML),
        ("w.json", JSON),
        ("w.yaml", JSON),
        ("w.txt", JSON),
        ("w", YAML),
        ("w.yaml", b"\xef\xbb\xbf" + YAML.encode()),
        ("w.json", b"\xef\xbb\xbf" + JSON.encode()),
        ("w.yaml", YAML.replace("\n", "\r\n")),
        ("w.yaml", f"---\n{YAML}...\n"),
    ],
)
def test_the_suffix_or_the_first_character_decides_between_yaml_and_json(
    tmp_path: Path, name: str, content: str | bytes
) -> None:
    loaded = load_file(written(tmp_path / name, content))

    assert loaded == load_text(JSON)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the document is empty; expected a workflow with 'name' and 'nodes'"),
        (b"\xff\xfen\x00", "line 1: the text is not UTF-8; save the file as UTF-8"),
        (b"name: w\n# \xe9\n", "line 2: the text is not UTF-8; save the file as UTF-8"),
        (
            b" " * 10_000_001,
            (
                "the document is larger than 10 MB; move large data into separate files, and pass "
                "their names"
            ),
        ),
    ],
)
def test_a_file_that_is_not_a_document_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    assert problems_of(written(tmp_path / "w.yaml", content)) == [problem]


def test_a_missing_file_a_directory_and_an_invalid_path_are_refused(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "no.yaml") == ["there is no such file; check the path"]
    assert problems_of(tmp_path) == ["the path is a directory; name a file in it"]
    assert problems_of(tmp_path / "a\0b") == ["the file can't be read: embedded null byte"]


def test_an_error_of_the_file_system_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.symlink_to(path)

    assert problems_of(path) == ["the file can't be read: Too many levels of symbolic links"]


def test_the_error_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "w.yaml", "name: w\n")

    with pytest.raises(InvalidWorkflowError, match=r"w\.yaml: 1 problem\n  - the key 'nodes'"):
        load_file(path)


def child_of(file: str) -> str:
    return workflow(node("a", f"config: {{file: {file}, input: {{x: 1}}}}", handler="workflow"))


def test_the_path_of_a_child_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    written(tmp_path / "below" / "middle.yaml", child_of("../last.yaml"))
    written(tmp_path / "last.yaml", YAML)

    loaded = load_file(written(tmp_path / "first.yaml", child_of("below/middle.yaml")))

    middle = loaded.nodes[0].child
    assert middle is not None
    assert middle.nodes[0].child == load_text(YAML)
    assert loaded.nodes[0].config == {"input": {"x": 1}}


def test_nodes_that_name_the_same_file_share_one_workflow(tmp_path: Path) -> None:
    written(tmp_path / "child.yaml", YAML)
    text = workflow(
        node("a", "config: {file: child.yaml}", handler="workflow"),
        node("b", "config: {file: ./child.yaml}", handler="workflow"),
    )

    loaded = load_file(written(tmp_path / "w.yaml", text))

    assert loaded.nodes[0].child is loaded.nodes[1].child


def test_a_cycle_of_files_is_refused_with_their_names(tmp_path: Path) -> None:
    written(tmp_path / "b.yaml", child_of("a.yaml"))
    path = written(tmp_path / "a.yaml", child_of("b.yaml"))

    (problem,) = problems_of(path)
    assert problem == (
        "nodes[0].config.file → b.yaml: nodes[0].config.file: the files refer to each other: "
        "a.yaml → b.yaml → a.yaml; break the cycle"
    )


def test_problems_of_a_child_file_name_the_chain_of_files(tmp_path: Path) -> None:
    written(tmp_path / "child.yaml", "name: c\nnodes: [{id: a}]\n")
    text = workflow(
        node("a", "config: {file: child.yaml}", handler="workflow"),
        node("b", "config: {file: none.yaml}", handler="workflow"),
    )

    assert problems_of(written(tmp_path / "w.yaml", text)) == [
        "nodes[0].config.file → child.yaml: nodes[0]: the key 'handler' is missing",
        "nodes[1].config.file → none.yaml: there is no such file; check the path",
    ]


def test_child_files_may_be_nested_twenty_deep(tmp_path: Path) -> None:
    for depth in range(30):
        written(tmp_path / f"{depth}.yaml", child_of(f"{depth + 1}.yaml"))
    written(tmp_path / "30.yaml", YAML)

    load_file(tmp_path / "10.yaml")
    (problem,) = problems_of(tmp_path / "9.yaml")
    assert problem.endswith("child workflows are nested deeper than 20; flatten them")


def test_a_child_may_be_named_if_names_can_be_resolved() -> None:
    known = load_text(YAML)
    text = workflow(node("a", "config: {workflow: w}", handler="workflow"))

    def resolve(name: str) -> Workflow | None:
        return known if name == "w" else None

    assert load_text(text, resolve=resolve).nodes[0].child is known
    with pytest.raises(InvalidWorkflowError, match="there is no workflow 'v'; submit it first"):
        load_text(text.replace("workflow: w}", "workflow: v}"), resolve=resolve)
