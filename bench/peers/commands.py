"""How the processes of the peers are started, for given settings."""

from collections.abc import Callable

from bench.peers.peer import Command, Settings
from runnel.app.private_servers.server import LOOPBACK


def program(module: str) -> Command:
    """One of ours, that submits and measures."""
    return ["-m", "programs", module]


def workers(module: str, key: str) -> Callable[[Settings], list[Command]]:
    """As many of ours as the setting says."""
    return lambda settings: [[*program(module), "worker"]] * settings[key]


def celery_workers(settings: Settings) -> list[Command]:
    celery = ["-m", "celery", "--app", "programs.on_celery", "worker", "--loglevel", "WARNING"]
    # What a single worker has nobody to say to.
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    slots = ["--pool", settings["pool"], "--concurrency", str(settings["concurrency"])]
    return [[*celery, *quiet, *slots]]


def taskiq_workers(settings: Settings) -> list[Command]:
    return [
        _taskiq("nodes", settings["processes"], settings["concurrency"]),
        _taskiq("coordinators", settings["coordinators"], settings["coordinated"]),
    ]


def temporal_server(port: int, settings: Settings) -> Command:
    command = ["temporal", "server", "start-dev", "--ip", LOOPBACK, "--port", str(port)]
    command += ["--headless", "--db-filename", "temporal.db", "--log-level", "error"]
    for pragma in settings["pragmas"]:
        command += ["--sqlite-pragma", pragma]
    for value in settings["dynamic"]:
        command += ["--dynamic-config-value", value]
    return command


def _taskiq(broker: str, processes: int, slots: int) -> Command:
    taskiq = ["-m", "taskiq", "worker", f"programs.on_taskiq:{broker}", "--log-level", "WARNING"]
    return [*taskiq, "--workers", str(processes), "--max-async-tasks", str(slots)]
