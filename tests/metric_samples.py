"""Parses metrics of the Prometheus text format for tests."""

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, dict[tuple[str, ...], float]]


def parse_samples(text: str) -> Samples:
    """Returns samples by metric name, then by label values in the order of the label names."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def parse_metric_types(text: str) -> dict[str, str]:
    """Returns the type of each metric by its name, including metrics without a sample."""
    lines = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    return {name: kind for _, _, name, kind in lines}
