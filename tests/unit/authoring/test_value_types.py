"""The types of annotations: what is converted, checked, refused and described as JSON Schema."""

import dataclasses
import datetime as dt
import re
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterable
from dataclasses import InitVar, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar

import msgspec
import pytest

from runnel.app.decorated import workflow
from runnel.authoring.decorators.member_types import MemberError, find_member
from runnel.authoring.input_schema import find_value_problems, is_surely_valid
from runnel.authoring.signatures import compile_signature
from runnel.authoring.single_types import MismatchError
from runnel.authoring.storable_values import to_json
from runnel.authoring.value_types import build_schemas, compile_type
from runnel.errors import InvalidInputError, TraceError
from tests.integration import typed_flows as flows


@pytest.mark.parametrize("name", flows.SAMPLES)
def test_a_value_is_equal_after_it_was_stored(name: str) -> None:
    annotation, value, stored = flows.SAMPLES[name]
    kind = compile_type(annotation)

    decoded = kind.decode(to_json(value), "value")

    assert (decoded, type(decoded)) == (value, type(value))
    assert kind.decode_json(msgspec.json.encode(to_json(value)), "value") == value
    if stored is not None:
        assert to_json(value) == stored


@pytest.mark.parametrize("name", flows.SAMPLES)
def test_a_stored_value_fits_the_json_schema(name: str) -> None:
    annotation, value, _ = flows.SAMPLES[name]
    (schema,), definitions = build_schemas([annotation])

    problems = find_value_problems({**schema, "$defs": definitions}, to_json(value), where="v")

    assert problems == []


class Plain(TypedDict):
    a: int
    b: list[str | None]


T = TypeVar("T")


@pytest.mark.parametrize(
    "annotation",
    [
        *(int, str, float, bool, None, list, dict, Any, object, Plain, T),
        *(
            list[int],
            dict[str, Any],
            dict[str, object],
            list[re.Pattern[str]],
            dict[str, list[Plain]],
            int | None,
            Annotated[int, "doc"],
        ),
    ],
)
def test_a_plain_json_type_is_passed_on_unchanged(annotation: Any) -> None:
    value = object()

    assert compile_type(annotation).is_plain
    assert compile_type(annotation).decode(value, "value") is value


@pytest.mark.parametrize("annotation", [re.Pattern, "Missing", Iterable[re.Pattern[str]] | int])
def test_a_class_that_is_not_known_is_not_converted(annotation: Any) -> None:
    assert compile_type(annotation).decode([1], "value") == [1]


@dataclasses.dataclass
class Holder:
    pattern: re.Pattern[str] | None
    day: dt.date
    own: int = dataclasses.field(init=False, default=7)


def test_a_field_of_a_class_that_is_not_known_is_not_converted() -> None:
    holder = compile_type(Holder).decode({"pattern": "x", "day": "2026-01-01", "own": 8}, "v")

    assert (holder.pattern, holder.day, holder.own) == ("x", dt.date(2026, 1, 1), 8)


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (dt.date, "2026-02-30", "v: invalid RFC3339 encoded date"),
        (dt.timedelta, 3, "v: expected duration, got int"),
        (dict[str, dt.date], {"a b": "x"}, "v['a b']: invalid RFC3339 encoded date"),
        (dict[int, dt.date], {"x": "2026-01-01"}, "v: the key 'x': expected int, got str"),
        (list[flows.Line], [{"name": 1}], "v[0].name: expected str, got int"),
        (list[flows.Line], [{"name": "a"}], "v[0]: the field 'price' is missing"),
        (tuple[int, Path], [1], "v: expected 2 items, got 1"),
        (flows.Point, [1, 2], "v[1]: expected date, got int"),
        (flows.Status, "lost", "v: expected one of 'open', 'paid', got 'lost'"),
        (flows.Mixed, 3, "v: expected one of 1.5, 'text', got 3"),
        (flows.Access, 9, "v: "),
        (flows.Folder, {"path": 1}, "v.path: expected a path as text, got 1"),
        (flows.Invoice | flows.Refund, {"number": 1}, "v: the field"),
        (Literal["a"], "b", "v: expected one of 'a', got 'b'"),
        (Annotated[int, msgspec.Meta(ge=2)], 1, "v: expected int >= 2"),
        (flows.Closed, {"side": 2, "area": 5}, "v.area: extra inputs are not permitted"),
        (flows.Closed, {"side": 2, "more": 4}, "v.more: extra inputs are not permitted"),
        (flows.Customer, {"full_name": "A", "born": "2026-01-01"}, "v.full_name: string should"),
        (list[flows.StrictOrder], [{"day": "2026-01-01"}], "v[0].customer: field required"),
        (set[str], "abc", "v: expected a list, got 'abc'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(MismatchError) as caught:
        compile_type(annotation).decode(value, "v")

    assert str(caught.value).startswith(problem)


def test_texts_and_numbers_are_not_coerced() -> None:
    for value in ("3", 3.5, True):
        with pytest.raises(MismatchError):
            compile_type(flows.Refund | None).decode({"number": value, "reason": ""}, "v")


def test_unknown_fields_are_ignored() -> None:
    line = compile_type(flows.Line).decode({"name": "a", "price": "1", "newer": 1}, "v")

    assert line == flows.Line("a", Decimal(1))


def test_the_quick_check_accepts_typed_inputs() -> None:
    annotations = [flows.Invoice, set[str], flows.Point, bytes, dt.datetime, dt.date | None]
    schemas, definitions = build_schemas(annotations)
    schema = {
        "type": "object",
        "properties": {str(index): part for index, part in enumerate(schemas)},
        "$defs": definitions,
    }
    values = [flows.INVOICE, {"a"}, flows.Point(1, flows.DAY), b"x", flows.UTC_TIME, None]

    assert is_surely_valid(schema, to_json({str(i): value for i, value in enumerate(values)}))
    assert not is_surely_valid(schema, {"5": "2026-02-30"})


def test_two_types_with_one_name_have_two_definitions() -> None:
    other = dataclasses.make_dataclass("Folder", [("path", Path), ("size", int)])
    (first, second), definitions = build_schemas([flows.Folder, other])

    assert first != second
    assert len([name for name in definitions if name.startswith("Folder")]) == 2


def test_a_datetime_has_a_format_at_any_depth() -> None:
    annotation = dict[str, list[flows.Event | None]]
    schemas, definitions = build_schemas([annotation, dt.time | None, tuple[int, dt.datetime]])

    assert definitions["Event"]["properties"]["sentAt"]["anyOf"][0]["format"] == "date-time"
    assert schemas[1]["anyOf"][0]["format"] == "time"
    assert schemas[2]["prefixItems"][1]["format"] == "date-time"


LATE = """
from __future__ import annotations
from datetime import date
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Missing

def load(day: date, other: Missing, *args: int, later: Later = None, **more: date) -> Later: ...

class Later(dict): ...
"""


def test_an_annotation_only_for_type_checkers_counts_as_no_annotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_annotations.py").write_text(textwrap.dedent(LATE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_annotations", raising=False)
    import late_annotations  # type: ignore[import-not-found]  # written above

    signature = compile_signature(late_annotations.load)

    assert signature is not None
    day = "2026-01-01"
    assert signature.decode_arguments({"day": day, "other": day, "more": day}) == {
        "day": dt.date(2026, 1, 1),
        "other": day,
        "more": dt.date(2026, 1, 1),
    }


def documented(*, a: int, day: dt.date, b: str = "", ctx: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("names", "is_accepted"),
    [
        ({"a", "day"}, True),
        ({"a", "day", "b"}, True),
        ({"a", "day", "ctx"}, True),
        ({"a"}, False),
        ({"a", "day", "c"}, False),
    ],
)
def test_a_compiled_signature_accepts_the_arguments_of_the_function(
    names: set[str], is_accepted: bool
) -> None:
    signature = compile_signature(documented)

    assert signature is not None
    assert signature.accepts(names) is is_accepted


def test_a_wrong_argument_names_the_function_and_the_path() -> None:
    signature = compile_signature(documented)

    assert signature is not None
    with pytest.raises(InvalidInputError, match=r"does not fit documented: day: invalid RFC3339"):
        signature.decode_arguments({"a": 1, "day": "x"})


@pytest.mark.parametrize(
    ("annotation", "key", "stored_key", "part"),
    [
        (flows.Invoice, "lines", "lines", list[flows.Line]),
        (flows.Invoice | None, "day", "day", dt.date),
        (list[flows.Invoice], 0, 0, flows.Invoice),
        (dict[int, dt.date], 3, "3", dt.date),
        (flows.Point, "day", 1, dt.date),
        (flows.Point, 1, 1, dt.date),
        (flows.Event, "event_id", "eventId", uuid.UUID),
        (flows.Customer, "born", "born", dt.date),
        (flows.Customer, "initial", "initial", None),
        (flows.Status, "value", None, None),
        (flows.Closeds, "root", None, list[flows.Closed]),
        (flows.Closed, "area", "area", None),
        (flows.Checked, "day", "day", dt.date),
        (flows.Entry, "day", "day", dt.date),
        (tuple[int, Path], 1, 1, Path),
        (dict, "a", "a", None),
        (None, "a", "a", None),
    ],
)
def test_a_part_of_a_type_has_a_key_in_json(
    annotation: Any, key: Any, stored_key: Any, part: Any
) -> None:
    assert find_member(annotation, key) == (stored_key, part)


@pytest.mark.parametrize(
    ("annotation", "key"),
    [
        (flows.Invoice, "total"),
        (dt.date, "year"),
        (flows.Status, "name"),
        (Path, "parent"),
        (Decimal, "real"),
        (flows.Customer, "model_dump"),
    ],
)
def test_a_part_that_is_not_stored_is_refused(annotation: Any, key: str) -> None:
    with pytest.raises(MemberError):
        find_member(annotation, key)


def trace_total() -> Any:
    return flows.add_prices(flows.load_invoice(1).total)  # type: ignore[arg-type]


def trace_comparison() -> Any:
    line = flows.load_invoice(1).lines[0]
    return flows.load_invoice.when(line.price > Decimal(1))(1)


def trace_order_of_enums() -> Any:
    return flows.load_invoice.when(flows.load_invoice(1).status < flows.Status.PAID)(1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (trace_total, "'total' is code of Invoice, and not a stored field; read it inside a task"),
        (trace_comparison, "compares a Decimal, which is stored as text; compare it inside a task"),
        (trace_order_of_enums, "compares a Status, which is stored as text"),
    ],
)
def test_a_body_that_needs_more_than_the_stored_value_is_refused(body: Any, problem: str) -> None:
    with pytest.raises(TraceError) as caught:
        workflow(body).to_workflow()

    assert problem in str(caught.value)


def test_typed_constants_of_a_body_are_written_as_json() -> None:
    def body() -> Any:
        flows.locate(flows.DAY)
        flows.get_price(flows.Line("a", Decimal("1.5")), factor=Decimal(2))
        flows.describe(flows.Level.HIGH, flows.DAY, flows.Event(flows.ID), flows.Status.PAID)
        flows.load_invoice.when(flows.load_invoice(1).day >= flows.DAY)(1)

    nodes = workflow(body).to_workflow().nodes

    assert [node.config["args"] for node in nodes[:3]] == [
        {"day": "2026-11-18"},
        {"line": {"name": "a", "price": "1.5"}, "factor": "2"},
        {
            "x": 2,
            "day": "2026-11-18",
            "event": {"eventId": str(flows.ID), "sentAt": None},
            "status": "paid",
        },
    ]
    assert nodes[4].condition == 'load_invoice.day >= "2026-11-18"'


def test_no_type_but_a_model_of_the_user_imports_pydantic() -> None:
    code = (
        "import datetime, sys; from runnel.authoring.value_types import *\n"
        "compile_type(list[datetime.date]).decode(['2026-01-01'], ''); build_schemas([set[int]])\n"
        "assert 'pydantic' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@dataclass
class Scaled:
    size: int
    scale: InitVar[int]

    def __post_init__(self, scale: int) -> None:
        self.size *= scale


def test_a_required_init_var_is_refused_by_its_name() -> None:
    with pytest.raises(MismatchError, match=r"v\[0\]: the InitVar 'scale' of Scaled is not stored"):
        compile_type(list[Scaled]).decode([{"size": 2}], "v")
