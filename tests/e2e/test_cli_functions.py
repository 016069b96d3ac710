"""Functions that can't be imported are found before anything runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = """\
name: lost
nodes:
  - {id: slow, handler: sleep, config: {seconds: 60}}
  - {id: a, handler: python, config: {function: "steps:nope"}}
  - {id: b, handler: python, config: {function: "nowhere:f", mode: process}}
"""


@pytest.mark.e2e
def test_a_function_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "lost.yaml").write_text(DOCUMENT)
    (tmp_path / "steps.py").write_text("def other():\n    pass\n")

    done = subprocess.run(
        [sys.executable, "-m", "runnel", "run", "lost.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "node 'a': config.function: can't find 'steps:nope'" in done.stderr
    assert "node 'b'" not in done.stderr
    assert not (tmp_path / ".runnel").exists()


@pytest.mark.e2e
def test_a_function_that_is_not_allowed_is_not_even_imported(tmp_path: Path) -> None:
    document = '{"name": "x", "nodes": [{"id": "a", "handler": "python", "config": {"function": '
    (tmp_path / "x.json").write_text(document + '"steps:main"}}]}')
    (tmp_path / "steps.py").write_text("open('imported', 'w')\ndef main():\n    pass\n")

    done = subprocess.run(
        [sys.executable, "-m", "runnel", "run", "x.json"],
        cwd=tmp_path,
        env={**os.environ, "RUNNEL_ALLOW_PYTHON": "other:*"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "this worker may not use the function 'steps:main'" in done.stderr
    assert not (tmp_path / "imported").exists()
