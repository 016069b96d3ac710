"""A function that can't be imported is reported before anything runs."""

from pathlib import Path

import pytest

from tests.e2e.program import Program

DOCUMENT = """\
name: lost
nodes:
  - {id: slow, handler: sleep, config: {seconds: 60}}
  - {id: a, handler: python, config: {function: "steps:nope"}}
  - {id: b, handler: python, config: {function: "nowhere:f", mode: process}}
"""


@pytest.mark.e2e
def test_a_missing_function_is_refused_before_the_run(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (tmp_path / "lost.yaml").write_text(DOCUMENT)
    (tmp_path / "steps.py").write_text("def other():\n    pass\n")

    done = program.run("run", "lost.yaml")

    assert done.returncode == 2
    assert "node 'a': config.function: can't find 'steps:nope'" in done.stderr
    assert "node 'b'" not in done.stderr
    assert not (tmp_path / ".runnel").exists()


@pytest.mark.e2e
def test_a_function_that_is_not_allowed_is_not_imported(tmp_path: Path) -> None:
    program = Program(tmp_path)
    document = '{"name": "x", "nodes": [{"id": "a", "handler": "python", "config": {"function": '
    (tmp_path / "x.json").write_text(document + '"steps:main"}}]}')
    (tmp_path / "steps.py").write_text("open('imported', 'w')\ndef main():\n    pass\n")

    done = program.run("run", "x.json", RUNNEL_ALLOW_PYTHON="other:*")

    assert done.returncode == 2
    assert "this worker may not use the function 'steps:main'" in done.stderr
    assert not (tmp_path / "imported").exists()
