"""deploy/: alert rules and dashboard name only metrics that exist."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from runnel.api.http_metrics import HttpMetrics
from runnel.backends.memory import MemoryBackend
from runnel.client.operations import PartitionMonitor, StoreGauges
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.settings.model import Settings
from runnel.telemetry.metrics import MetricFamily, MetricsTelemetry
from runnel.telemetry.prometheus import Exposition
from tests.metric_samples import parse_metric_types

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "guides" / "metrics.md"

_NAME = re.compile(r"\b(?:runnel|process)_[a-z0-9_]+\b")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_MATCHED = re.compile(r"\b([a-z_]+)(=~|!=|!~|=)\"")


def families() -> list[MetricFamily]:
    """Returns the metric families of processes of every role."""
    clock, settings = RealClock(), Settings()
    backend = MemoryBackend(clock, RandomIdGenerator())
    partitions = PartitionMonitor(backend.store, clock, lease_s=1.0)
    gauges = StoreGauges(backend, clock, settings, partitions)
    return [
        *MetricsTelemetry().collect_families(),
        *gauges.collect_families(),
        *HttpMetrics().collect_families(),
    ]


@cache
def known() -> dict[str, str]:
    """Returns the kind of each metric by its name in Prometheus."""
    exposition = Exposition(families)
    names: dict[str, str] = {}
    for name, kind in parse_metric_types(exposition.render().decode()).items():
        names[name] = kind
        if kind == "histogram":
            names |= dict.fromkeys((f"{name}_bucket", f"{name}_count", f"{name}_sum"), kind)
    return names


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    return listed


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + shown


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_names_only_metrics_that_exist(expression: str) -> None:
    named = set(_NAME.findall(expression))

    assert named
    assert named <= known().keys()


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_is_well_formed(expression: str) -> None:
    counters = [name for name in _NAME.findall(expression) if known()[name] == "counter"]

    for opened, closed in ("()", "[]", "{}"):
        assert expression.count(opened) == expression.count(closed)
    for name in counters:
        assert re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[", expression), name
    assert all(words.strip() or "on ()" in expression for words in _BY.findall(expression))


def test_every_alert_has_a_severity_a_summary_and_a_description() -> None:
    names = [rule["alert"] for rule in rules()]

    assert len(names) == len(set(names))
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))


def test_expressions_use_only_labels_of_the_metrics() -> None:
    labels = {"le", "job", "instance"}
    labels |= {label for family in families() for label in family.labels}
    used = {
        label.strip()
        for expression in expressions()
        for words in _BY.findall(expression)
        for label in words.split(",")
        if label.strip()
    }
    used |= {label for expression in expressions() for label, _ in _MATCHED.findall(expression)}

    assert used <= labels


def test_no_two_panels_share_a_position() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]

    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in panels()}) == len(places)


def test_every_metric_is_in_the_table_of_its_page() -> None:
    page = PAGE.read_text()
    ours = [name for name in known() if name.startswith("runnel_")]
    families_only = [name for name in ours if not name.endswith(("_bucket", "_count", "_sum"))]

    missing = [name for name in families_only if f"`{name}`" not in page]

    assert not missing
