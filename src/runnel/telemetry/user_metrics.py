"""What user code measures by `ctx.metrics`, kept within bounds whatever it names."""

import re
from collections.abc import Mapping
from typing import cast

from runnel.telemetry.families import Family, Key, Kind, Sample, Spread, Tally, spread_samples

NAMES_MAX = 200
SERIES_MAX = 2_000
LABEL_CHARS_MAX = 100

_UNFIT = re.compile(r"[^a-zA-Z0-9_]+")
_KINDS: Mapping[str, Kind] = {"count": "counter", "gauge": "gauge", "timing": "histogram"}
_SUFFIXES = {"count": "", "gauge": "", "timing": "_seconds"}


class UserMetrics:
    """`runnel_user_<name>`, with the labels that were given and the handler that measured.

    So many names and so many combinations of labels at most: what is beyond that is counted, and
    not kept.
    """

    def __init__(self) -> None:
        self._families: dict[str, tuple[Kind, dict[Key, list[float]]]] = {}
        self._series = 0
        self._dropped = Tally(
            "runnel_user_metrics_dropped", "Measurements of user code over the bounds."
        )

    def measure(self, fields: Mapping[str, object]) -> None:
        """As the worker tells of it: metric, kind, value, labels, handler."""
        given, kind = str(fields.get("kind")), _KINDS.get(str(fields.get("kind")))
        value = fields.get("value")
        if kind is None or not isinstance(value, int | float):
            self._dropped.add()
            return
        name = f"runnel_user_{_fit(str(fields.get('metric')))}{_SUFFIXES[given]}"
        labels = {
            "handler": fields.get("handler", ""),
            **cast("dict[str, object]", fields["labels"]),
        }
        found = self._found(name, kind, _key(labels))
        if found is None:
            self._dropped.add()
        elif kind == "histogram":
            _spread(found, float(value))
        else:
            found[0] = float(value) if kind == "gauge" else found[0] + float(value)

    def families(self) -> list[Family]:
        return [self._dropped.family(), *(self._family(name) for name in self._families)]

    def _found(self, name: str, kind: Kind, key: Key) -> list[float] | None:
        """None for what is too much, and for a name that is of another kind already."""
        family = self._families.get(name)
        if family is None:
            if len(self._families) >= NAMES_MAX:
                return None
            family = self._families[name] = (kind, {})
        known, series = family
        if known != kind:
            return None
        found = series.get(key)
        if found is None and self._series < SERIES_MAX:
            self._series += 1
            found = series[key] = [0.0]
        return found

    def _family(self, name: str) -> Family:
        kind, series = self._families[name]
        samples: list[Sample] = []
        for key, found in series.items():
            labels = dict(zip(key[::2], key[1::2], strict=True))
            if kind == "histogram":
                samples += spread_samples(found, labels)
            else:
                samples.append(Sample("", labels, found[0]))
        return Family(name=name, kind=kind, about="Measured by user code.", samples=samples)


def _spread(found: list[float], seconds: float) -> None:
    spread = Spread("", "")
    if len(found) > 1:
        spread.buckets[()] = found
    spread.add(seconds)
    found[:] = spread.buckets[()]


def _key(labels: Mapping[str, object]) -> Key:
    """Names and values in turn, by name."""
    pairs = sorted((_fit(name), str(value)[:LABEL_CHARS_MAX]) for name, value in labels.items())
    return tuple(word for pair in pairs for word in pair)


def _fit(name: str) -> str:
    fitting = _UNFIT.sub("_", name)[:LABEL_CHARS_MAX]
    return f"_{fitting}" if not fitting or fitting[0].isdigit() else fitting
