"""The handlers that reach outside, each imported with its first task.

All together take 45 ms to import, httpx another 110: a run that calls nobody pays for neither.
"""

from functools import partial
from typing import TYPE_CHECKING

from runnel.authoring.calls import Call
from runnel.authoring.registry import Plan
from runnel.core.json_types import Json
from runnel.core.service_settings import RULES
from runnel.handlers.means import Means

if TYPE_CHECKING:
    from runnel.handlers.http.web import Web
    from runnel.handlers.shell.running import Shell

NAMES = tuple(RULES)


class Outside:
    """What they keep from task to task, connections and a guardian, is theirs together."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._plans: dict[str, Plan] = {}
        self._web: Web | None = None
        self._shell: Shell | None = None

    def plan_of(self, handler: str) -> Plan:
        return partial(self._plan, handler)

    async def close(self) -> None:
        """Those of the running event loop; a later task opens them again."""
        if self._web is not None:
            await self._web.close()
        if self._shell is not None:
            await self._shell.close()

    def _plan(self, handler: str, config: Json) -> Call:
        if handler not in self._plans:
            self._plans[handler] = self._made(handler)
        return self._plans[handler](config)

    def _made(self, handler: str) -> Plan:
        if handler == "shell":
            from runnel.handlers.shell.running import Shell

            self._shell = Shell(self._means)
            return self._shell.plan
        from runnel.handlers.external_service import ExternalService
        from runnel.handlers.http.web import Web
        from runnel.handlers.llm_service import LlmService

        self._web = self._web or Web(self._means)
        if handler == "llm_service":
            return LlmService(self._means, self._web).plan
        return ExternalService(handler, self._web, self._means.clock).plan
