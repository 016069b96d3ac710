"""Runs a process with a role on servers, from the settings to its exit code."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from runnel.authoring.app import load_app
from runnel.authoring.registry import HandlerRegistry
from runnel.errors import InputError
from runnel.handlers import builtin_registry
from runnel.ports import telemetry as names
from runnel.ports.backend import Backend
from runnel.ports.telemetry import Telemetry
from runnel.runtime.addresses import redis_shown, secrets_of
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import World
from runnel.runtime.process import Process
from runnel.runtime.roles import Role
from runnel.runtime.stores import open_redis
from runnel.settings import Settings, look_alikes
from runnel.telemetry.logs import LogTelemetry
from runnel.telemetry.output import write_logs

Build: TypeAlias = Callable[[Backend, World, Telemetry], Role]


async def serve(settings: Settings, role: str, build: Build) -> int:
    """Until a signal; raises StoreError when the server can't be reached at the beginning."""
    world = World(RealClock(), RealIds())
    backend = await open_redis(settings, world.clock, world.ids)
    write_logs(
        format_=settings.log_format,
        level=settings.log_level,
        secrets=secrets_of(settings),
        about={"role": role},
    )
    telemetry = LogTelemetry()
    for sentence in look_alikes():
        telemetry.event(names.SETTING_UNKNOWN, problem=sentence)
    telemetry.event(
        names.STORE_OPENED, redis=redis_shown(settings), environment=settings.environment
    )
    return await Process(build(backend, world, telemetry), backend, telemetry).run()


def handlers_of(app: str | None) -> HandlerRegistry:
    """The built-in ones and those of the app; raises InputError when two share a name."""
    handlers = builtin_registry()
    if app is not None:
        handlers.include(load_app(app))
    return handlers


def queues_of(text: str | None) -> Sequence[str] | None:
    """By the names that people use, `python,reports`: a queue's key begins with `tasks:`."""
    if text is None:
        return None
    names_ = [name.strip() for name in text.split(",")]
    if not all(names_):
        raise InputError(f"--queues: expected names with commas between them, got '{text}'")
    return [f"tasks:{name.removeprefix('tasks:')}" for name in dict.fromkeys(names_)]
