"""What the routes of one process work on."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from runnel.api.security.tokens import Tokens
from runnel.client import Client
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`stopping` is set when the process ends: whoever waits on behalf of a client gives up."""

    client: Client
    backend: Backend
    clock: Clock
    settings: Settings
    tokens: Tokens
    stopping: asyncio.Event


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


OfSite: TypeAlias = Annotated[Site, Depends(_site)]
