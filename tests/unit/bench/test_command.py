"""`python -m bench`: an error is one sentence, and the results list jobs that did not run."""

import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.job import BenchmarkJob

JOBS = [BenchmarkJob(name="one", run=dict), BenchmarkJob(name="two", run=dict)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--job", "nope"], "no job is called 'nope': see --list"),
        (["--only", "nope"], "no job has all of these words: nope"),
    ],
)
def test_an_unknown_job_is_reported_in_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)

    assert caught.value.code == sentence


@pytest.mark.parametrize("option", ["--repetitions", "--minutes"])
@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_number_below_one_is_reported_in_one_sentence(
    capsys: pytest.CaptureFixture[str], option: str, text: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main([option, text, "--list"])

    assert caught.value.code == 2
    assert f"expected a whole number of at least 1, got '{text}'" in capsys.readouterr().err


def test_a_job_that_did_not_start_in_time_is_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "list_jobs", lambda: JOBS)
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "_run_job", lambda _job: {"executions_per_s": 1.0})
    times = iter([0.0, 1.0, 120.0])
    monkeypatch.setattr(command, "now", lambda: next(times))

    command.main(["--minutes", "1", "--repetitions", "1"])

    results = json.loads((tmp_path / "results.json").read_text())
    assert results["failed"] == {"two": "not started: the limit of 1 minutes was reached"}
    assert results["is_complete"]
    assert results["settings"]["redis"].endswith(", private, on disk, appendfsync everysec")


def test_the_last_line_of_an_exception_group_is_its_error_not_its_border() -> None:
    text = "Traceback\n  | ServerFailedError: worker-0 ended\n  +-----------------\n"

    assert command.find_last_line(text) == "ServerFailedError: worker-0 ended"
    assert command.find_last_line("\n") == "no output"
