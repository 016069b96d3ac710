"""`runnel.SyncClient`: the blocking `runnel.Client`, for code without an event loop.

Each method runs the `HttpClient` method of the same name on an event loop in a separate thread.
"""

from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runnel.client.http_client import DEFAULT_RETRIES, HttpClient
from runnel.client.http_resources import HttpTokens, HttpWebhooks
from runnel.client.sync_wrappers import (
    BlockingMethod,
    IteratingMethod,
    SyncBulk,
    SyncDeadLetters,
    SyncOperations,
    SyncSchedules,
    SyncSubWrapper,
    SyncValues,
    SyncWorkflows,
    SyncWrapper,
)


class SyncWebhooks(SyncSubWrapper[HttpWebhooks]):
    add = BlockingMethod(HttpWebhooks.add)
    list = BlockingMethod(HttpWebhooks.list)
    get = BlockingMethod(HttpWebhooks.get)
    remove = BlockingMethod(HttpWebhooks.remove)


class SyncTokens(SyncSubWrapper[HttpTokens]):
    create = BlockingMethod(HttpTokens.create)
    list = BlockingMethod(HttpTokens.list)
    revoke = BlockingMethod(HttpTokens.revoke)


class SyncClient(SyncWrapper[HttpClient]):
    """The blocking `HttpClient`; use it in a `with` block, from any number of threads."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._exit_stack = ExitStack()
        self.portal: BlockingPortal = self._exit_stack.enter_context(start_blocking_portal())
        try:
            self.client: HttpClient = self.portal.call(
                partial(HttpClient, url, token, timeout_s=timeout_s, retries=retries)
            )
        except BaseException:
            self._exit_stack.close()
            raise
        self._exit_stack.callback(self.portal.call, self.client.close)
        self.schedules = SyncSchedules(self.portal, self.client.schedules)
        self.webhooks = SyncWebhooks(self.portal, self.client.webhooks)
        self.dead_letters = SyncDeadLetters(self.portal, self.client.dead_letters)
        self.operations = SyncOperations(self.portal, self.client.operations)
        self.many = SyncBulk(self.portal, self.client.many)
        self.tokens = SyncTokens(self.portal, self.client.tokens)
        self.library = SyncWorkflows(self.portal, self.client.library)
        self.values = SyncValues(self.portal, self.client.values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; a second call has no effect."""
        self._exit_stack.close()

    submit = BlockingMethod(HttpClient.submit)
    submit_many = BlockingMethod(HttpClient.submit_many)
    run = BlockingMethod(HttpClient.run)
    run_many = IteratingMethod(HttpClient.run_many)
    hold = BlockingMethod(HttpClient.hold)
    trigger = BlockingMethod(HttpClient.trigger)
    wait = BlockingMethod(HttpClient.wait)
    get = BlockingMethod(HttpClient.get)
    node = BlockingMethod(HttpClient.node)
    history = BlockingMethod(HttpClient.history)
    follow = IteratingMethod(HttpClient.follow)
    list_executions = BlockingMethod(HttpClient.list_executions)
    executions = IteratingMethod(HttpClient.executions)
    count_executions = BlockingMethod(HttpClient.count_executions)
    find = BlockingMethod(HttpClient.find)
    summaries = BlockingMethod(HttpClient.summaries)
    cancel = BlockingMethod(HttpClient.cancel)
    signal = BlockingMethod(HttpClient.signal)
    rerun = BlockingMethod(HttpClient.rerun)
    store = BlockingMethod(HttpClient.store)
    delete_workflow = BlockingMethod(HttpClient.delete_workflow)
    workflows = IteratingMethod(HttpClient.workflows)
    versions = BlockingMethod(HttpClient.versions)
    document = BlockingMethod(HttpClient.document)
    server = BlockingMethod(HttpClient.server)
    ready = BlockingMethod(HttpClient.ready)
