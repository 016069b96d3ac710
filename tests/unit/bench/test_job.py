"""Nothing that a job has started outlives it."""

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


async def test_one_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_child([sys.executable, "-c", STARTS_ANOTHER], folder=tmp_path, timeout_s=2.0)

    pid = (tmp_path / "pid").read_text()
    await wait_until(lambda: not Path("/proc", pid).exists())


def test_what_it_says_is_kept(tmp_path: Path) -> None:
    words = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"

    found = run_child([sys.executable, "-c", words], folder=tmp_path, timeout_s=60.0)

    assert found == (3, "out\n", "err\n")
