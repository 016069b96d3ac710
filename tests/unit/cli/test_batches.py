"""`runnel batch` reads documents and counts their results."""

import json
from pathlib import Path

import pytest

from runnel.cli.session.batch_documents import read_documents
from runnel.cli.session.batch_run import describe_pace
from runnel.cli.session.batch_tally import BatchTally
from runnel.client.batch import BatchItem, BatchOutcome
from runnel.client.execution_views import build_execution_summary
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.store import ExecutionHeader
from tests.core_driver import make_node, make_workflow

ANY = make_workflow(make_node("a"))
STRICT = make_workflow(
    make_node("a"),
    input={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)


def read_keys(path: Path, text: str, id_field: str | None = None) -> list[str]:
    path.write_text(text)
    return [document.key for document in read_documents(str(path), ANY, id_field=id_field)]


def test_a_key_depends_on_the_content_and_not_on_the_line_number(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"

    first = read_keys(file, '{"n": 1, "m": 2}\n{"n": 2}\n\n{"n": 2}\n')
    second = read_keys(file, '"new"\r\n{"n":2}\n{"m":2,"n":1}\n{"n": 2 }')

    assert len(set(first)) == 3
    assert second[1:] == [first[1], first[0], first[2]]
    assert first[2] == f"{first[1]}#2"


def test_a_key_is_the_value_of_a_field(tmp_path: Path) -> None:
    assert read_keys(tmp_path / "a.jsonl", '{"m": {"id": 7}}\n{"m": {"id": "x"}}', "m.id") == [
        "7",
        "x",
    ]


def test_each_line_of_a_csv_file_becomes_an_object_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "a.CSV"
    file.write_text('\ufeffid,text\n1,"two\nlines"\n2,ü\n')

    documents = read_documents(str(file), ANY, id_field="id")

    assert [(document.key, document.input) for document in documents] == [
        ("1", {"id": "1", "text": "two\nlines"}),
        ("2", {"id": "2", "text": "ü"}),
    ]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.jsonl", "\n \n", "the file has no documents"),
        ("a.jsonl", "1\n{", "line 2 is not JSON"),
        ("a.jsonl", "[" * 5000, "line 1 is not JSON"),
        ("a.jsonl", "1\n" + "2" * 10_000_001, "line 2 is longer than 10 MB; keep large data in"),
        (
            "a.csv",
            "a,b\n1\n",
            "a.csv: line 2 has 1 columns; expected 2, as in the first line",
        ),
        ("a.csv", "a,b\n1,2,3\n", "a.csv: line 2 has 3 columns; expected 2, as in the first line"),
        ("a.csv", "a,b,a\n1,2,3\n", "two columns are named 'a'; give each its own name"),
        ("a.csv", 'a,b\n"1', "is not CSV"),
        ("a.csv", "a,b\n", "the file has no documents"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_in_the_error(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(InputError, match=sentence):
        read_documents(str(tmp_path / name), ANY, id_field=None)


def test_a_line_that_is_not_utf_8_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a\nb\nü\n".encode("latin-1"))

    with pytest.raises(InputError, match="line 3 is not UTF-8 text; save it as UTF-8"):
        read_documents(str(tmp_path / "a.csv"), ANY, id_field=None)


@pytest.mark.parametrize("id_field", ["", "a.", "a..b"])
def test_an_id_field_without_a_name_is_refused(tmp_path: Path, id_field: str) -> None:
    (tmp_path / "a.jsonl").write_text("{}")

    with pytest.raises(InputError, match="--id-field: expected a name such as id"):
        read_documents(str(tmp_path / "a.jsonl"), ANY, id_field=id_field)


def test_csv_cells_become_numbers_where_the_schema_expects_numbers(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("n,zip\n3,10115\n4,x\n")

    documents = read_documents(str(file), STRICT, id_field=None)

    assert [document.input for document in documents] == [
        {"n": 3, "zip": "10115"},
        {"n": 4, "zip": "x"},
    ]


def test_all_problems_are_reported_before_anything_is_submitted(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [{"n": 1, "id": "a"}, {"id": "b"}, {"n": 3, "id": "a"}, {"n": 4}, {"n": 1, "id": 1.5}]
    file.write_text("\n".join(map(json.dumps, lines)))

    with pytest.raises(InputError) as caught:
        read_documents(str(file), STRICT, id_field="id")

    assert str(caught.value).splitlines() == [
        f"--inputs {file}: 4 problems",
        "  - line 2: input: the field 'n' is missing",
        "  - line 3: id is 'a', as in line 1",
        "  - line 4: expected id to be a text or a whole number, got null",
        "  - line 5: expected id to be a text or a whole number, got 1.5",
    ]


def make_outcome(number: int, state: ExecutionState, *, is_earlier: bool = False) -> BatchOutcome:
    header = ExecutionHeader(
        execution_id=ExecutionId(f"x{number}"),
        workflow="w",
        version=1,
        definition="d",
        state=state,
        created_at=0.0,
        started_at=1.0,
        finished_at=1.0 + number,
    )
    return BatchOutcome(
        BatchItem(number, str(number), b"{}"),
        build_execution_summary(header),
        is_from_earlier_run=is_earlier,
    )


def test_pace_and_quantiles_count_only_documents_of_this_run() -> None:
    tally = BatchTally(200, started_at=1_000.0)
    unknown = describe_pace(tally, 1_000.0)
    for number in range(1, 101):
        tally.add(make_outcome(number, ExecutionState.COMPLETED))
    tally.add(make_outcome(500, ExecutionState.FAILED, is_earlier=True))

    document = tally.to_document("b", 1_060.0)

    assert unknown == "0 of 200 documents"
    assert (
        describe_pace(tally, 1_060.0) == "101 of 200 documents, 6,000 per hour, 59 s left, 1 failed"
    )
    assert (document["p50_s"], document["p95_s"]) == (51.0, 96.0)
    assert (document["completed"], document["failed"], document["unfinished"]) == (100, 1, 99)
    assert (document["done_before"], document["documents_per_hour"]) == (1, 6000)


def test_the_time_left_does_not_count_documents_that_wait_for_a_signal() -> None:
    tally = BatchTally(10, started_at=100.0)
    tally.add(make_outcome(1, ExecutionState.COMPLETED))
    tally.waiting = {ExecutionId(f"x{n}"): "signal 'approve'" for n in range(4)}

    # 5 of 10 documents have ended or wait after 10 s.
    assert tally.remaining_s(110.0) == 10.0
    assert describe_pace(tally, 110.0).endswith("10 s left, 4 wait for signal 'approve'")

    tally.waiting = {ExecutionId(f"x{n}"): "signal 'approve'" for n in range(9)}
    assert tally.remaining_s(110.0) is None
