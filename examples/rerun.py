"""Reruns the failed tasks and those that depend on them; results of other tasks are reused.

$ runnel run examples/rerun.py
…
read_rate: failed: FileNotFoundError: [Errno 2] No such file or directory: 'rate.txt'
…
run the failed nodes again: runnel rerun …
$ echo 0.19 > rate.txt
$ runnel rerun @last
"1000 EUR and 190 EUR tax"
$ runnel show @last
…
✓ add_up      COMPLETED … 1000 (taken over from …)
✓ read_rate   COMPLETED  …  1         0.19
✓ write_bill  COMPLETED  …  1         "1000 EUR and 190 EUR tax"
…
"""

from pathlib import Path
from typing import Any

from runnel import task, workflow


@task
def add_up() -> int:
    """A real task would work for an hour here."""
    return 1000


@task(retries=0)
def read_rate() -> float:
    return float(Path("rate.txt").read_text())


@task
def write_bill(amount: int, rate: float) -> str:
    return f"{amount} EUR and {amount * rate:.0f} EUR tax"


@workflow
def bill() -> Any:
    amount = add_up()
    return write_bill(amount, read_rate.after(amount)())
