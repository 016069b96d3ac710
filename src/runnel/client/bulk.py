"""Many executions at once, by a filter: in bounded steps, each of which may be repeated."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from runnel.authoring.payloads import shorten_reason
from runnel.client.idempotency import execution_id_of
from runnel.client.listing import check_filter
from runnel.client.reruns import Rerun
from runnel.client.store_client import Client
from runnel.core.commands import CancelExecution
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import Archive, Cursor, ExecutionFilter
from runnel.ports.store import Header, Mailbox

# Of a step: cancels are sent together, reruns read the history of each.
CANCELS = 500
RERUNS = 100
FAILURES_KEPT = 100

UNFINISHED = tuple(state for state in ExecutionState if state not in EXECUTION_FINAL)


class BulkFailure(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: ExecutionId
    error: str


class BulkStep(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` are what was cancelled, or the new executions; `known` had been rerun so before.

    `next` is what the filter of the next step has as `after`, None when all is done. Of the
    failures, the first FAILURES_KEPT say why.
    """

    ids: Sequence[ExecutionId] = ()
    known: int = 0
    failed: int = 0
    failures: Sequence[BulkFailure] = ()
    next: Cursor | None = None


async def cancel_many(
    client: Client,
    mailbox: Mailbox,
    wanted: ExecutionFilter,
    *,
    reason: str = "",
    is_forced: bool = False,
    limit: int = CANCELS,
) -> BulkStep:
    """Asks all that are not final to end, from the newest on; asking again is asking once.

    Raises InputError for a filter that wants only what has ended.
    """
    kept_reason = shorten_reason(reason) or "cancelled by request"
    page = await client.list_executions(cancellable(wanted, limit=limit))
    commands = [
        CancelExecution(execution_id=header.execution_id, reason=kept_reason, is_forced=is_forced)
        for header in page
    ]
    if commands:
        await mailbox.send(commands)
    return BulkStep(ids=[each.execution_id for each in commands], next=page.next)


async def rerun_many(
    client: Client,
    archive: Archive,
    wanted: ExecutionFilter,
    rerun: Rerun | None = None,
    *,
    key: str = "",
    limit: int = RERUNS,
) -> BulkStep:
    """A rerun of each that has failed, or ended as the filter says, from the newest on.

    A step is repeatable: an execution has one bulk rerun of a kind for each `key`. One that was
    rerun so before is left out, and its rerun, if that has failed too, is not. Raises InputError
    for a filter that wants what has not ended.
    """
    kind = rerun or Rerun()
    own_key = f"bulk {_digest(kind, key)}"
    page = await client.list_executions(rerunnable(wanted, limit=limit))
    former = await _without_rerun(archive, page.headers, own_key)
    ids: list[ExecutionId] = []
    failures: list[BulkFailure] = []
    for header in former:
        try:
            ids.append(await client.rerun(header.execution_id, kind, idempotency_key=own_key))
        except InputError as error:
            failures.append(BulkFailure(execution_id=header.execution_id, error=str(error)))
    return BulkStep(
        ids=ids,
        known=len(page.headers) - len(former),
        failed=len(failures),
        failures=failures[:FAILURES_KEPT],
        next=page.next,
    )


async def _without_rerun(archive: Archive, headers: Sequence[Header], key: str) -> list[Header]:
    """One whose rerun is PENDING is among them: that may lack something, and is made good."""
    made = {each.execution_id: execution_id_of(each.execution_id, key) for each in headers}
    known = await archive.get_headers(list(made.values()))
    done = {id_ for id_, each in known.items() if each.state is not ExecutionState.PENDING}
    return [each for each in headers if made[each.execution_id] not in done]


def cancellable(wanted: ExecutionFilter, *, limit: int) -> ExecutionFilter:
    """The same for what is not final; raises InputError if it wants only what is."""
    states = tuple(each for each in wanted.states if each not in EXECUTION_FINAL)
    if wanted.states and not states:
        raise InputError("what has ended can't be cancelled: name running or pending executions")
    found = replace(wanted, states=states or UNFINISHED, limit=limit)
    check_filter(found)
    return found


def rerunnable(wanted: ExecutionFilter, *, limit: int) -> ExecutionFilter:
    """The same for what has failed, unless it says otherwise; raises InputError."""
    if any(each not in EXECUTION_FINAL for each in wanted.states):
        raise InputError("only what has ended can be rerun: name failed, cancelled or completed")
    if wanted.with_children or wanted.parent is not None:
        raise InputError("child executions can't be rerun by themselves: rerun their roots")
    found = replace(wanted, states=wanted.states or (ExecutionState.FAILED,), limit=limit)
    check_filter(found)
    return found


def _digest(kind: Rerun, key: str) -> str:
    return hashlib.blake2b(msgspec.json.encode((kind, key)), digest_size=9).hexdigest()
