"""`Client.many`: what is done to all executions that a filter finds, in steps of the server."""

from collections.abc import AsyncIterator, Mapping
from math import isfinite

from runnel.bulk import BulkStep
from runnel.core.json_types import Json
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter
from runnel.remote.answers import read
from runnel.remote.rerunning import wish_of
from runnel.remote.transport import Transport
from runnel.reruns import Rerun
from runnel.views import moment


class Many:
    """A filter without anything in it means every execution, and has to be given to say so.

    Each step that was done is told, with those that could not be done; who stops in between has
    done the others.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def cancel(
        self, wanted: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        """Ends those that are not final, from the newest on, 500 in each step."""
        body = {"reason": reason, "force": is_forced}
        async for each in self._steps("/v1/executions/cancel", wanted, body):
            yield each

    async def rerun(
        self, wanted: ExecutionFilter, rerun: Rerun | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        """Reruns those that have failed, or are in the states of the filter, 100 in each step.

        Each once for each `key`, however often this is called.
        """
        body = {**wish_of(rerun or Rerun()), "key": key}
        async for each in self._steps("/v1/executions/rerun", wanted, body):
            yield each

    async def _steps(
        self, path: str, wanted: ExecutionFilter, body: Mapping[str, Json]
    ) -> AsyncIterator[BulkStep]:
        after = wanted.after
        while True:
            given = {**_chosen(wanted), **body, "after": after}
            found = read(await self._transport.post(path, given), BulkStep)
            yield found
            after = found.next
            if after is None:
                return


def _chosen(wanted: ExecutionFilter) -> dict[str, Json]:
    begin, end = wanted.created_from, wanted.created_before
    return {
        "status": [state.value for state in wanted.states],
        "workflow": wanted.workflow,
        "label": [f"{key}={value}" for key, value in wanted.labels.items()],
        "created_from": moment(begin) if isfinite(begin) else None,
        "created_before": moment(end) if isfinite(end) else None,
        "text": wanted.text,
        "rerun_of": wanted.rerun_of,
        "parent": wanted.parent,
        "children": wanted.with_children,
        "every": wanted == ALL_EXECUTIONS,
    }
