"""The roles of processes on servers: chooses and wires their parts."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel import __version__
from runnel.authoring.registry import HandlerRegistry
from runnel.client import Client, Ending
from runnel.core.policy import Policy
from runnel.core.states import ExecutionState
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.orchestrator.parts import Parts
from runnel.engine.orchestrator.shares import sharing_orchestrator
from runnel.engine.services.archiver import Archiver
from runnel.engine.services.reaper import Reaper
from runnel.engine.services.retention import RetentionService
from runnel.engine.services.unserved import Unserved
from runnel.engine.services.watchdog import Watchdog
from runnel.engine.worker import Worker
from runnel.ports.backend import Backend
from runnel.ports.registry import WorkerAbout
from runnel.ports.retention import Retention
from runnel.ports.telemetry import Telemetry
from runnel.runtime.engine import World
from runnel.runtime.names import host_name, role_name
from runnel.runtime.roles import OrchestratorRole, Service, WorkerRole
from runnel.runtime.secret_values import secrets_of_worker
from runnel.settings import Settings
from runnel.triggers.scheduler import Scheduler
from runnel.triggers.schedules import Schedules

if TYPE_CHECKING:
    from runnel.backends.archived import ArchivedBackend


def build_orchestrator(
    settings: Settings,
    backend: Backend,
    world: World,
    telemetry: Telemetry,
    *,
    archived: "ArchivedBackend | None" = None,
    retention: Retention | None = None,
) -> OrchestratorRole:
    """Decides for partitions of a server that it shares with other processes.

    `archived` is the backend again, if it has an archive to be kept up to date; `retention` is
    what deletes there what has ended long ago, None if nothing is to be deleted.
    """
    name = role_name("orchestrator", world.ids.nonce())
    parts = Parts(
        store=backend.store,
        archive=backend.archive,
        blobs=backend.blobs,
        clock=world.clock,
        ids=world.ids,
        telemetry=telemetry,
        policy=Policy(losses_max=settings.losses_max, keeps_exhausted=settings.keeps_exhausted),
        cached_executions_max=settings.cached_executions_max,
        idle_s_max=settings.redis_block_s,
    )
    orchestrator = sharing_orchestrator(parts, name=name, lease_s=settings.lease_s)
    services = [
        *_services(settings, backend, parts, orchestrator),
        build_scheduler(backend, world, telemetry),
        *([] if archived is None else _archiving(settings, archived, parts, orchestrator)),
        *([] if retention is None else [_keeping(settings, retention, parts)]),
    ]
    return OrchestratorRole(name, orchestrator, services)


def build_scheduler(
    backend: Backend, world: World, telemetry: Telemetry, client: Client | None = None
) -> Scheduler:
    """Fires schedules; an embedded engine gives its own client, so that it runs what they start."""
    return Scheduler(
        Schedules(backend, world.clock, world.ids),
        client or Client(backend, world.clock, world.ids, ending_of=lambda _id: Ending()),
        backend.archive,
        world.clock,
        telemetry,
    )


def build_worker(
    settings: Settings,
    backend: Backend,
    world: World,
    telemetry: Telemetry,
    *,
    handlers: HandlerRegistry,
    queues: Sequence[str] | None = None,
) -> WorkerRole:
    """Runs tasks of a server: of all queues, or of those that are named."""
    name = role_name("worker", world.ids.nonce())
    worker = Worker(
        backend.tasks,
        backend.blobs,
        handlers,
        world.clock,
        telemetry,
        name=name,
        concurrency=settings.worker_concurrency,
        queues=queues,
        about=WorkerAbout(
            host=host_name(),
            pid=os.getpid(),
            handlers=tuple(handlers.names()),
            version=__version__,
        ),
        secrets=secrets_of_worker(settings),
        beat_s=settings.heartbeat_interval_s,
        shutdown_s=settings.shutdown_timeout_s,
    )
    return WorkerRole(name, worker)


def _services(
    settings: Settings, backend: Backend, parts: Parts, orchestrator: Orchestrator
) -> Sequence[Service]:
    """Everything that an orchestrator's process does besides deciding."""
    around = (backend.store, backend.tasks, parts.clock, parts.telemetry)
    return [
        Reaper(*around, dead_after_s=settings.heartbeat_timeout_s),
        Unserved(*around, unserved_s=settings.unserved_s),
        Watchdog(
            parts,
            orchestrator,
            sweep_s=settings.sweep_s,
            repair_after_s=settings.repair_after_s,
            stale_s=settings.unread_s,
        ),
    ]


def _archiving(
    settings: Settings, backend: "ArchivedBackend", parts: Parts, orchestrator: Orchestrator
) -> Sequence[Service]:
    """What it does besides where PostgreSQL keeps what Redis may forget."""
    return [
        Archiver(
            backend.journal,
            backend.ledger,
            parts.clock,
            parts.telemetry,
            hot_blobs=backend.hot_blobs,
            cold_blobs=backend.cold_blobs,
            leases=orchestrator.leases,
            alarm_s=settings.archive_alarm_s,
        ),
    ]


def _keeping(settings: Settings, retention: Retention, parts: Parts) -> Service:
    days = {ExecutionState(state): kept for state, kept in settings.retention_days.items()}
    return RetentionService(retention, parts.clock, parts.telemetry, days=days)
