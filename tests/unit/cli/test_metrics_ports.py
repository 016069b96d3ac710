"""Processes that share one socket serve their metrics on separate ports."""

import pytest

from runnel.cli.session.server_roles import assign_metrics_ports
from runnel.errors import InputError


@pytest.mark.parametrize(
    ("first", "ports"),
    [
        (None, [[], []]),
        (0, [["--metrics-port", "0"], ["--metrics-port", "0"]]),
        (9100, [["--metrics-port", "9100"], ["--metrics-port", "9101"]]),
    ],
)
def test_each_process_gets_the_next_port(first: int | None, ports: list[list[str]]) -> None:
    assert assign_metrics_ports(first, 2) == ports


def test_ports_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="2 processes need one port each, from 65535 on"):
        assign_metrics_ports(65_535, 2)
