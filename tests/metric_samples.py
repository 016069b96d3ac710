"""Metrics as a test reads them."""

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, dict[tuple[str, ...], float]]


def parse_samples(text: str) -> Samples:
    """By name, then by the values of their labels, which are sorted by name."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def parse_metric_types(text: str) -> dict[str, str]:
    """The kind of each metric by its name, also of those without a sample."""
    lines = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    return {name: kind for _, _, name, kind in lines}
