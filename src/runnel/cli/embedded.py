"""Runs an engine and its HTTP API on a data directory, from the settings to the exit code."""

import socket
from functools import partial
from pathlib import Path

from runnel.api.build import build_api
from runnel.authoring.registry import HandlerRegistry
from runnel.cli.api import settle_in
from runnel.cli.documents import make_importable
from runnel.cli.serving import handlers_of
from runnel.errors import InputError
from runnel.ports import telemetry as names
from runnel.runtime.build import build_engine
from runnel.runtime.build_roles import build_scheduler
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import World
from runnel.runtime.permitted import server_handlers
from runnel.runtime.process import Process
from runnel.runtime.roles import EngineRole, Together
from runnel.settings import Settings, look_alikes
from runnel.telemetry.metrics import Metrics
from runnel.telemetry.output import write_logs


async def serve_embedded(settings: Settings, app: str | None, listening: socket.socket) -> int:
    """Until a signal. It goes on with whatever a process that has died left in the directory."""
    make_importable([])
    engine = await build_engine(settings, handlers=_handlers(app, settings))
    try:
        write_logs(
            format_=settings.log_format,
            level=settings.log_level,
            hide=engine.secrets.hide,
            about={"role": "dev"},
        )
        for sentence in look_alikes():
            engine.hub.event(names.SETTING_UNKNOWN, problem=sentence)
        engine.hub.event(names.STORE_OPENED, data_dir=str(settings.data_dir))
        metrics = Metrics()
        engine.hub.count_by(metrics)
        await engine.claim_home()
        world = World(engine.clock, RealIds())
        answering = await build_api(
            settings,
            engine.client,
            engine.backend,
            world,
            listening=listening,
            newsroom=engine.newsroom,
            on_answering=partial(settle_in, listening),
            metrics=metrics,
        )
    except BaseException:
        await engine.backend.close()
        raise
    scheduler = build_scheduler(engine.backend, world, engine.hub, engine.client)
    role = Together(EngineRole(engine, [scheduler]), first=answering)
    return await Process(role, engine.backend, engine.hub).run()


def _handlers(app: str | None, settings: Settings) -> HandlerRegistry:
    """What a document may call that came over HTTP: own code, and what the settings allow."""
    if app is not None or settings.allowed_functions is not None:
        return handlers_of(app, settings)
    return server_handlers(settings, RealClock(), own_modules=_own_modules(Path.cwd()))


def _own_modules(folder: Path) -> list[str]:
    """Patterns for the functions of its Python files and packages."""
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"can't read '{folder}': {error.strerror}") from error
    files = [f"{each.stem}:*" for each in found if each.suffix == ".py"]
    packages = [f"{each.name}.*" for each in found if (each / "__init__.py").is_file()]
    return files + packages
