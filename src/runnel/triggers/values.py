"""What a workflow gets to know about the tick that started it."""

from datetime import UTC, datetime

from runnel.authoring.payloads import RESERVED_LABELS
from runnel.core.json_types import Json
from runnel.core.templates import MissingValueError, compile_tree
from runnel.triggers.schedule import Schedule
from runnel.triggers.zones import zone_of

ROOTS = ("schedule", "tick")
LABEL = "schedule"
"""The id of the schedule that an execution was started by."""
TICK_LABEL = RESERVED_LABELS + "tick"
"""The moment of the tick, in UTC."""


def input_of(schedule: Schedule, tick: float) -> Json:
    """The input with its templates filled in; raises TemplateError, which names the place."""
    values = {"schedule": {"id": schedule.id}, "tick": tick_document(schedule, tick)}
    return compile_tree(schedule.input, where="input").resolve(RootScope(values))


def labels_of(schedule: Schedule, tick: float) -> dict[str, str]:
    marks = {LABEL: schedule.id, TICK_LABEL: _in_utc(tick)}
    return {**schedule.labels, **schedule.own_labels, **marks}


def tick_document(schedule: Schedule, tick: float) -> Json:
    """The `tick` of templates: the moment in UTC, and how the clocks of its time zone show it."""
    local = datetime.fromtimestamp(tick, zone_of(schedule.timezone))
    return {
        "at": _in_utc(tick),
        "timestamp": tick,
        "local": local.isoformat(),
        "date": local.date().isoformat(),
        "time": local.time().isoformat(timespec="seconds"),
    }


class RootScope:
    """The values of templates by the names that they begin with."""

    def __init__(self, values: dict[str, Json]) -> None:
        self._values = values

    def lookup(self, root: str) -> Json:
        if root not in self._values:
            raise MissingValueError(root, names=self._values)
        return self._values[root]


def _in_utc(tick: float) -> str:
    return datetime.fromtimestamp(tick, UTC).isoformat().replace("+00:00", "Z")
