"""A job ends with all processes that it has started."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.job import run_child
from tests.waiting import wait_until

STARTS_ANOTHER = """
import pathlib, subprocess, sys
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path("pid").write_text(str(other.pid))
other.wait()
"""


async def test_a_job_that_takes_too_long_is_killed_with_its_child_processes(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_child([sys.executable, "-c", STARTS_ANOTHER], folder=tmp_path, timeout_s=2.0)

    pid = (tmp_path / "pid").read_text()
    await wait_until(lambda: not Path("/proc", pid).exists())


def test_the_output_of_a_job_is_returned(tmp_path: Path) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"

    result = run_child([sys.executable, "-c", program], folder=tmp_path, timeout_s=60.0)

    assert result == (3, "out\n", "err\n")
