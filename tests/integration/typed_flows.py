"""Workflows with values of every supported type, and bodies that read parts of such values.

For each sample there is a workflow in each mode. Its task fails unless it gets an equal value of
the same type.
"""

import datetime as dt
import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses

import runnel
from runnel import task, workflow
from runnel.app.decorated import DecoratedWorkflow


class Status(enum.Enum):
    OPEN = "open"
    PAID = "paid"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    NUMBER = 1.5
    TEXT = "text"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Line:
    name: str
    price: Decimal


@dataclass(frozen=True)
class Invoice:
    number: int
    day: dt.date
    lines: list[Line]
    status: Status = Status.OPEN
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Decimal:
        return sum((line.price for line in self.lines), Decimal(0))


@dataclass
class Refund:
    number: int
    reason: str


@dataclass
class Folder:
    path: Path
    document: Invoice | Refund
    folders: "list[Folder]" = field(default_factory=list)


class Point(NamedTuple):
    x: int
    day: dt.date


class Entry(TypedDict):
    day: dt.date
    sizes: NotRequired[tuple[int, ...]]


class Event(msgspec.Struct, rename="camel"):
    event_id: uuid.UUID
    sent_at: dt.datetime | None = None


class Created(msgspec.Struct, tag=True):
    id: int


class Removed(msgspec.Struct, tag=True):
    id: int


class Customer(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName", min_length=2)
    born: dt.date
    tags: set[str] = set()

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def initial(self) -> str:
        return self.full_name[0]


class Closed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def area(self) -> int:
        return self.side**2


class Closeds(pydantic.RootModel[list[Closed]]):
    pass


@pydantic.dataclasses.dataclass
class Checked:
    day: dt.date
    closed: Closed | None = None


class StrictOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    day: dt.date
    customer: Customer


UserId = NewType("UserId", int)

UTC_TIME = dt.datetime(2026, 11, 18, 13, 43, 1, 7, dt.UTC)
DAY = dt.date(2026, 11, 18)
ID = uuid.UUID(int=7)
INVOICE = Invoice(3, DAY, [Line("a", Decimal("1.10")), Line("b", Decimal(2))], Status.PAID)
CUSTOMER = Customer(fullName="Ada", born=DAY, tags={"x"})

SAMPLES: Mapping[str, tuple[Any, Any, Any]] = {
    "dataclass": (
        Invoice,
        INVOICE,
        {
            "number": 3,
            "day": "2026-11-18",
            "lines": [{"name": "a", "price": "1.10"}, {"name": "b", "price": "2"}],
            "status": "paid",
            "notes": {},
        },
    ),
    "recursive": (
        Folder,
        Folder(Path("a"), Refund(1, "late"), [Folder(Path("b"), INVOICE)]),
        None,
    ),
    "struct": (
        Event,
        Event(ID, UTC_TIME),
        {"eventId": str(ID), "sentAt": "2026-11-18T13:43:01.000007Z"},
    ),
    "tagged": (Created | Removed, Removed(3), {"type": "Removed", "id": 3}),
    "model": (
        Customer,
        CUSTOMER,
        {"full_name": "Ada", "born": "2026-11-18", "tags": ["x"], "initial": "A"},
    ),
    "strict_model": (StrictOrder, StrictOrder(day=DAY, customer=CUSTOMER), None),
    "closed_models": (
        Closeds,
        Closeds([Closed(side=2), Closed(side=3)]),
        [{"side": 2, "area": 4}, {"side": 3, "area": 9}],
    ),
    "model_dataclass": (Checked, Checked(DAY, Closed(side=2)), None),
    "models": (dict[str, list[Customer]], {"a": [CUSTOMER]}, None),
    "typed_dict": (Entry, {"day": DAY, "sizes": (1, 2)}, {"day": "2026-11-18", "sizes": [1, 2]}),
    "named_tuple": (Point, Point(1, DAY), [1, "2026-11-18"]),
    "enum": (Status, Status.PAID, "paid"),
    "int_enum": (Level, Level.HIGH, 2),
    "mixed_enum": (Mixed, Mixed.NUMBER, 1.5),
    "flag": (Access, Access.READ | Access.WRITE, 3),
    "date": (dt.date, DAY, "2026-11-18"),
    "datetime": (dt.datetime, UTC_TIME, "2026-11-18T13:43:01.000007Z"),
    "naive": (dt.datetime, UTC_TIME.replace(tzinfo=None, microsecond=0), "2026-11-18T13:43:01"),
    "time": (dt.time, dt.time(9, 30), "09:30:00"),
    "timedelta": (dt.timedelta, dt.timedelta(days=-1, seconds=3), "-PT86397S"),
    "uuid": (uuid.UUID, ID, str(ID)),
    "decimal": (Decimal, Decimal("1.10"), "1.10"),
    "big_int": (int, 10**40, 10**40),
    "bytes": (bytes, b"\x00\xff", "AP8="),
    "path": (Path, Path("a/b"), "a/b"),
    "posix_path": (PurePosixPath, PurePosixPath("a/b"), "a/b"),
    "set": (set[str], {"b", "a", "c"}, ["a", "b", "c"]),
    "frozenset": (frozenset[Point], frozenset({Point(1, DAY)}), [[1, "2026-11-18"]]),
    "tuple": (tuple[int, dt.date], (1, DAY), [1, "2026-11-18"]),
    "any_tuple": (tuple[Status, ...], (Status.OPEN, Status.PAID), ["open", "paid"]),
    "bare_tuple": (tuple, (1, 2), [1, 2]),
    "literal": (Literal["a", 1], "a", "a"),
    "optional": (dt.date | None, None, None),
    "union": (Invoice | Refund, Refund(1, "late"), {"number": 1, "reason": "late"}),
    "text_or_date": (str | dt.date, DAY, "2026-11-18"),
    "date_or_text": (dt.date | str, "soon", "soon"),
    "list": (list[Invoice], [INVOICE], None),
    "dict": (dict[str, dt.date], {"z": DAY, "a": DAY}, {"z": "2026-11-18", "a": "2026-11-18"}),
    "int_keys": (dict[int, Path], {3: Path("x")}, {"3": "x"}),
    "date_keys": (dict[dt.date, int], {DAY: 1}, {"2026-11-18": 1}),
    "sequence": (Sequence[Decimal], [Decimal("0.1")], ["0.1"]),
    "new_type": (UserId, UserId(3), 3),
    "deep": (dict[str, list[tuple[Point, set[int]]]], {"a": [(Point(1, DAY), {2, 1})]}, None),
    "plain": (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
}
"""The annotation, a value, and its stored JSON by name; None if the JSON is not compared."""

MODES = ("thread", "loop", "process")


def build_flow(name: str, mode: str) -> DecoratedWorkflow[..., Any]:
    """Builds a task and a workflow that take and return the type of a sample."""
    annotation, expected, _ = SAMPLES[name]

    def check(value: Any) -> Any:
        if type(value) is not type(expected) or value != expected:
            raise AssertionError(f"expected {expected!r}, got {value!r}")
        return value

    async def check_on_loop(value: Any) -> Any:
        return check(value)

    function: Callable[..., Any] = check_on_loop if mode == "loop" else check
    echo = _publish(function, f"echo_{mode}_{name}", annotation)
    globals()[echo.__name__] = node = task(mode=mode, retries=0)(echo)

    def body(value: Any) -> Any:
        return node(value)

    return workflow(_publish(body, f"flow_{mode}_{name}", annotation))


def _publish(function: Any, name: str, annotation: Any) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__annotations__ = {"value": annotation, "return": annotation}
    return function


FLOWS = {mode: {name: build_flow(name, mode) for name in SAMPLES} for mode in MODES}


# A workflow whose body reads parts of typed results.


@task
def load_invoice(number: int) -> Invoice:
    return Invoice(number, DAY, [Line("a", Decimal("1.10")), Line("b", Decimal(2))])


@task
async def add_prices(lines: list[Line]) -> Decimal:
    return sum((line.price for line in lines), Decimal(0))


@task
def get_price(line: Line, factor: Decimal = Decimal(1)) -> Decimal:
    return line.price * factor


@task
def locate(day: dt.date) -> Point:
    return Point(day.year, day)


@task
def describe(x: int, day: dt.date, event: Event, status: Status) -> tuple[int, str, uuid.UUID]:
    return x, f"{day:%d.%m.%Y} {status.name}", event.event_id


@task
def make_event(event_id: uuid.UUID) -> Event:
    return Event(event_id)


@task
def archive(invoice: Invoice | None, at: dt.datetime, line: Line) -> list[str]:
    return ["nothing" if invoice is None else str(invoice.total), at.isoformat(), line.name]


@dataclass
class Summary:
    total: Decimal
    prices: list[Decimal]
    described: tuple[int, str, uuid.UUID]
    archived: list[str]
    day: dt.date
    event_id: uuid.UUID


@workflow
def child_invoice(number: int) -> Invoice:
    return load_invoice(number)


@workflow
def summarize(since: dt.date, number: int = 3, factor: Decimal = Decimal(2)) -> Summary:
    invoice = child_invoice(number)
    total = add_prices(invoice.lines)
    prices = get_price.map(invoice.lines, factor=factor)
    point = locate(invoice.day)
    event = make_event(ID)
    late = load_invoice.when(invoice.day < since)(number)
    described = describe(point.x, point[1], event, invoice.status)
    archived = archive(late, UTC_TIME, Line("own", total))
    return Summary(total, prices, described, archived, point.day, event.event_id)


@task
def break_promise(number: int) -> Invoice:
    return {"number": number, "day": "2026-11-18", "lines": [{"name": "a"}]}  # type: ignore[return-value]


@workflow
def broken(number: int) -> Invoice:
    return break_promise(number)


@task
def return_unstorable() -> dict[str, Any]:
    return {"lines": [{"lock": object()}]}


@workflow
def unstorable() -> dict[str, Any]:
    return return_unstorable()


@task
def fail(number: int) -> Invoice:
    raise ValueError(f"no invoice {number}")


@task(run_when="all_settled")
def clean_up(invoice: Invoice) -> str:
    return str(invoice)


@workflow(on_failure="continue")
def cleaned(number: int) -> str:
    return clean_up(fail.options(retries=0)(number))


@task
def skip_even(number: int) -> Line:
    if number % 2 == 0:
        raise runnel.Skip("even")
    return Line(str(number), Decimal(number))


@task
def join_names(lines: list[Line]) -> list[str | None]:
    return [getattr(line, "name", None) for line in lines]


@workflow
def odd_names(numbers: list[int]) -> list[str | None]:
    return join_names(skip_even.map(numbers))
