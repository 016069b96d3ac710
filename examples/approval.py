"""Work that waits for a person, for up to a day; it occupies nothing, and survives a kill.

$ runnel run examples/approval.py --input amount=900 &    # until: waits for signal 'approve'
$ runnel signal @last approve --payload by=Ada
signal 'approve' sent to execution …
$ wait
"900 EUR paid, approved by Ada"
$ runnel run examples/approval.py --input amount=20
"20 EUR paid, approved by nobody: it is little"
"""

from typing import Any

from runnel import default, task, wait_for_signal, workflow

LITTLE = 100
A_DAY_S = 24 * 3600


@task
def ask(amount: int) -> dict[str, bool]:
    """Stands for a message to somebody."""
    return {"needs_a_person": amount > LITTLE}


@task
def pay(amount: int, by: str) -> str:
    return f"{amount} EUR paid, approved by {by}"


@workflow
def expenses(amount: int) -> Any:
    asked = ask(amount)
    answer = wait_for_signal.when(asked["needs_a_person"])("approve", timeout=A_DAY_S)
    return pay.after(asked)(amount, default(answer["by"], "nobody: it is little"))
