"""`python -m bench`: mistakes are one sentence, and what was left out is in the results."""

import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.job import BenchmarkJob

MANY = [BenchmarkJob(name="one", run=dict), BenchmarkJob(name="two", run=dict)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--job", "nope"], "no job is called 'nope': see --list"),
        (["--only", "nope"], "no job has all of these words: nope"),
    ],
)
def test_a_job_that_is_not_there_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)

    assert caught.value.code == sentence


@pytest.mark.parametrize("option", ["--repetitions", "--minutes"])
@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_number_that_makes_no_sense_is_one_sentence(
    capsys: pytest.CaptureFixture[str], option: str, text: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main([option, text, "--list"])

    assert caught.value.code == 2
    assert f"expected a whole number of at least 1, got '{text}'" in capsys.readouterr().err


def test_what_was_not_begun_in_time_is_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "list_jobs", lambda: MANY)
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "_run_job", lambda _job: {"executions_per_s": 1.0})
    times = iter([0.0, 1.0, 120.0])
    monkeypatch.setattr(command, "now", lambda: next(times))

    command.main(["--minutes", "1", "--repetitions", "1"])

    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["failed"] == {"two": "not started: the limit of 1 minutes was reached"}
    assert kept["is_complete"]
    assert kept["settings"]["redis"].endswith(", private, on disk, appendfsync everysec")


def test_the_last_words_of_a_group_of_errors_are_not_its_dashes() -> None:
    text = "Traceback\n  | ServerFailedError: worker-0 ended\n  +-----------------\n"

    assert command.find_last_line(text) == "ServerFailedError: worker-0 ended"
    assert command.find_last_line("\n") == "no output"
