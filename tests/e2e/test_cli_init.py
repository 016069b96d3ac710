"""`runnel init`: from an empty folder to tests that pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import DEADLINE_S, Program, clean_environment
from tests.fork_server import get_fork_server

pytestmark = pytest.mark.e2e


def test_a_new_project_runs_and_its_tests_pass(tmp_path: Path) -> None:
    made = Program(tmp_path).run("init", "shop/first")
    project = tmp_path / "shop/first"
    done = get_fork_server().run(
        ["run", "flow.py", "--input", "text=to be or not to be"],
        project,
        clean_environment(),
        deadline_s=DEADLINE_S,
    )
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."],
        cwd=project,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        check=False,
    )

    assert made.returncode == 0
    assert "  cd shop/first\n  runnel run flow.py\n" in made.stdout
    assert json.loads(done.out) == {
        "counts": {"total": 6, "different": 4},
        "longest": "not",
    }
    assert "3 passed" in tested.stdout, tested.stdout


def test_existing_files_are_not_changed(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (tmp_path / "flow.py").write_text("mine")

    refused = program.run("init")

    assert refused.returncode == 2
    assert refused.stderr == ("error: .: flow.py would be overwritten; name another directory\n")
    assert (tmp_path / "flow.py").read_text() == "mine"
    assert not (tmp_path / "test_flow.py").exists()
