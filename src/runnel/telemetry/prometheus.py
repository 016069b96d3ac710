"""Renders metrics in the text format of Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from runnel.telemetry.metrics import MetricFamily

MEDIA_TYPE = CONTENT_TYPE_LATEST

FamilySource = Callable[[], Iterable[MetricFamily]]


class Exposition:
    """Renders the metrics of several sources, and of the process: memory, CPU, files, GC."""

    def __init__(self, *sources: FamilySource) -> None:
        self._sources = list(sources)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(FamilyCollector(self._sources))

    def add(self, source: FamilySource) -> None:
        self._sources.append(source)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class FamilyCollector:
    """A collector for a registry of prometheus_client."""

    def __init__(self, sources: Sequence[FamilySource]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            yield from map(_to_metric, source())

    def describe(self) -> Iterable[Metric]:
        return ()


def _to_metric(family: MetricFamily) -> Metric:
    metric = Metric(family.name, family.about, family.kind)
    suffix = "_total" if family.kind == "counter" else ""
    for sample in family.samples:
        name = family.name + (sample.suffix or suffix)
        metric.add_sample(name, dict(sample.labels), sample.value)
    return metric
