"""`python -m bench.floors` prints a rate as text or JSON; an error is one sentence."""

import json

import pytest

from bench.floors.__main__ import main


def test_json_output_has_the_rate_and_its_spread(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["diamond", "--backend", "sqlite", "--count", "10", "--json"])

    out, err = capsys.readouterr()
    document = json.loads(out)
    low, high = document["floor_spread"]
    assert code == 0
    assert 0 < low <= document["floor_per_s"] <= high
    assert "floor of diamond on sqlite: 10 executions" in err


def test_text_output_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["chain", "--backend", "memory", "--count", "2"])

    out = capsys.readouterr().out
    assert code == 0
    assert out.startswith("floor: ")
    assert "executions per second" in out
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the following arguments are required: workload"),
        (["map"], "expected a workload with a floor (diamond, chain, fan, graph), got 'map'"),
        (["diamond", "--backend", "mysql"], "--backend: expected one of memory, sqlite, redis"),
        (["diamond", "--workers", "2"], "--workers: sqlite has one"),
        (["diamond", "--count", "0"], "--count: expected a whole number of at least 1, got '0'"),
        (["diamond", "--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_input_is_reported_in_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code = main(arguments)

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1
