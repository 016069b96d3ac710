"""Cancels or reruns all executions of a filter, in bounded steps that are safe to repeat."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from runnel.authoring.payloads import shorten_reason
from runnel.client.execution_lists import check_filter, iter_pages
from runnel.client.idempotency import derive_execution_id
from runnel.client.reruns import RerunClient, RerunSpec
from runnel.core.commands import CancelExecution
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, UNFINISHED_STATES, ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import Archive, ExecutionFilter
from runnel.ports.store import ExecutionHeader, Mailbox
from runnel.views.page import BulkFailure, BulkStep

# The number of executions in one step. A step sends all its cancels together. A step of reruns is
# smaller, because each rerun reads the history of its execution.
CANCELS_PER_STEP = 500
RERUNS_PER_STEP = 100
FAILURES_MAX = 100


class StoreBulk:
    """The client's `Bulk` over a store."""

    def __init__(self, client: RerunClient, archive: Archive, mailbox: Mailbox) -> None:
        self._client = client
        self._archive = archive
        self._mailbox = mailbox

    def cancel(
        self, criteria: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        return iter_pages(partial(self.cancel_step, reason=reason, is_forced=is_forced), criteria)

    def rerun(
        self, criteria: ExecutionFilter, options: RerunSpec | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        return iter_pages(partial(self.rerun_step, options=options, key=key), criteria)

    async def cancel_step(
        self,
        criteria: ExecutionFilter,
        *,
        reason: str = "",
        is_forced: bool = False,
        limit: int = CANCELS_PER_STEP,
    ) -> BulkStep:
        """Cancels one page of executions that are not final, newest first.

        A second cancel of the same execution has no effect. Raises InputError for a filter that
        selects only final executions.
        """
        kept_reason = shorten_reason(reason) or "cancelled by request"
        page = await self._archive.list_headers(restrict_to_cancellable(criteria, limit=limit))
        commands = [
            CancelExecution(
                execution_id=header.execution_id, reason=kept_reason, is_forced=is_forced
            )
            for header in page
        ]
        if commands:
            await self._mailbox.send(commands)
        return BulkStep(ids=[command.execution_id for command in commands], next=page.next)

    async def rerun_step(
        self,
        criteria: ExecutionFilter,
        options: RerunSpec | None = None,
        *,
        key: str = "",
        limit: int = RERUNS_PER_STEP,
    ) -> BulkStep:
        """Reruns one page of executions in the filter's states, by default FAILED, newest first.

        An execution has one bulk rerun for each pair of `key` and `options`, so a repeated step
        skips the executions that already have one. A failed rerun is itself an execution that the
        filter can select. Raises InputError if the filter selects executions that are not final.
        """
        options = options or RerunSpec()
        rerun_key = f"bulk {_hash_options(options, key)}"
        page = await self._archive.list_headers(restrict_to_rerunnable(criteria, limit=limit))
        former = await _filter_not_rerun(self._archive, page.headers, rerun_key)
        ids: list[ExecutionId] = []
        failures: list[BulkFailure] = []
        for header in former:
            try:
                ids.append(
                    await self._client.rerun(
                        header.execution_id, options, idempotency_key=rerun_key
                    )
                )
            except InputError as error:
                failures.append(BulkFailure(execution_id=header.execution_id, error=str(error)))
        return BulkStep(
            ids=ids,
            known=len(page.headers) - len(former),
            failed=len(failures),
            failures=failures[:FAILURES_MAX],
            next=page.next,
        )


async def _filter_not_rerun(
    archive: Archive, headers: Sequence[ExecutionHeader], key: str
) -> list[ExecutionHeader]:
    """Returns the executions that have no rerun, or whose rerun is PENDING.

    A process may have died after it sent only a part of the commands of a PENDING rerun. The
    repeated rerun sends all of these commands again.
    """
    rerun_ids = {
        header.execution_id: derive_execution_id(header.execution_id, key) for header in headers
    }
    known = await archive.get_headers(list(rerun_ids.values()))
    done = {id_ for id_, header in known.items() if header.state is not ExecutionState.PENDING}
    return [header for header in headers if rerun_ids[header.execution_id] not in done]


def restrict_to_cancellable(criteria: ExecutionFilter, *, limit: int) -> ExecutionFilter:
    """Returns the filter, restricted to executions that are not final.

    Raises InputError if no execution can match it.
    """
    states = tuple(state for state in criteria.states if state not in FINAL_EXECUTION_STATES)
    if criteria.states and not states:
        raise InputError("final executions can't be cancelled; select running or pending ones")
    restricted = replace(criteria, states=states or UNFINISHED_STATES, limit=limit)
    check_filter(restricted)
    return restricted


def restrict_to_rerunnable(criteria: ExecutionFilter, *, limit: int) -> ExecutionFilter:
    """Returns the filter, restricted to final executions, by default to failed ones.

    Raises InputError if it selects child executions or executions that are not final.
    """
    if any(state not in FINAL_EXECUTION_STATES for state in criteria.states):
        raise InputError(
            "only final executions can be rerun; select failed, cancelled or completed"
        )
    if criteria.with_children or criteria.parent is not None:
        raise InputError("child executions can't be rerun on their own; rerun their roots")
    restricted = replace(criteria, states=criteria.states or (ExecutionState.FAILED,), limit=limit)
    check_filter(restricted)
    return restricted


def _hash_options(options: RerunSpec, key: str) -> str:
    return hashlib.blake2b(msgspec.json.encode((options, key)), digest_size=9).hexdigest()
