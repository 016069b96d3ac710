"""The feed of a server: asked for what is new, it answers when something is."""

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.feed import Change, FeedPage, FeedPosition
from runnel.remote.transport import Transport

PATH = "/v1/changes"
WAIT_S_MAX = 30.0


class RemoteFeed:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def end(self) -> FeedPosition:
        return FeedPosition((await self._transport.get(PATH))["position"])

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        """As many as the server gives, whatever the `limit`."""
        wait_s = min(wait_s, WAIT_S_MAX)
        query = [("after", after), ("wait", str(wait_s))]
        answer = await self._transport.get(PATH, query, waits_s=wait_s)
        changes = [
            Change(
                ExecutionId(each["execution_id"]),
                None if each["status"] is None else ExecutionState(each["status"]),
                FeedPosition(each["position"]),
            )
            for each in answer["items"]
        ]
        position = FeedPosition(answer["position"])
        return FeedPage(changes=changes, position=position, has_gap=answer["has_gap"])
