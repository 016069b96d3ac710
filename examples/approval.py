"""Waits up to a day for an approval. The wait occupies no worker and survives a crash.

$ runnel run examples/approval.py --input amount=900 &  # wait until it prints: waits for signal
$ runnel signal @last approve --payload by=Ada
signal 'approve' sent to execution …
$ wait
"900 EUR paid, approved by Ada"
$ runnel run examples/approval.py --input amount=20
"20 EUR paid, approved by the rule for small amounts"
"""

from typing import Any

from runnel import default, task, wait_for_signal, workflow

APPROVAL_LIMIT_EUR = 100
DAY_S = 24 * 3600


@task
def ask(amount: int) -> dict[str, bool]:
    """A real task would send a message to a person here."""
    return {"needs_a_person": amount > APPROVAL_LIMIT_EUR}


@task
def pay(amount: int, by: str) -> str:
    return f"{amount} EUR paid, approved by {by}"


@workflow
def expenses(amount: int) -> Any:
    request = ask(amount)
    approval = wait_for_signal.when(request["needs_a_person"])("approve", timeout=DAY_S)
    return pay.after(request)(amount, default(approval["by"], "the rule for small amounts"))
