"""Builds the commands of the peers' processes for given settings."""

from collections.abc import Callable

from bench.peers.peer import Command, PeerSettings
from runnel.app.private_servers.server import LOOPBACK


def build_program_command(module: str) -> Command:
    """Returns the command of a program in `programs`, which submits and measures."""
    return ["-m", "programs", module]


def build_worker_commands(module: str, key: str) -> Callable[[PeerSettings], list[Command]]:
    """Returns a function that builds as many worker commands as the setting `key` says."""
    return lambda settings: [[*build_program_command(module), "worker"]] * settings[key]


def build_celery_commands(settings: PeerSettings) -> list[Command]:
    celery = ["-m", "celery", "--app", "programs.on_celery", "worker", "--loglevel", "WARNING"]
    # A single worker needs none of these messages.
    no_messages = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    slots = ["--pool", settings["pool"], "--concurrency", str(settings["concurrency"])]
    return [[*celery, *no_messages, *slots]]


def build_taskiq_commands(settings: PeerSettings) -> list[Command]:
    return [
        _build_taskiq_command("nodes", settings["processes"], settings["concurrency"]),
        _build_taskiq_command("coordinators", settings["coordinators"], settings["coordinated"]),
    ]


def build_temporal_command(port: int, settings: PeerSettings) -> Command:
    command = ["temporal", "server", "start-dev", "--ip", LOOPBACK, "--port", str(port)]
    command += ["--headless", "--db-filename", "temporal.db", "--log-level", "error"]
    for pragma in settings["pragmas"]:
        command += ["--sqlite-pragma", pragma]
    for value in settings["dynamic"]:
        command += ["--dynamic-config-value", value]
    return command


def _build_taskiq_command(broker: str, processes: int, slots: int) -> Command:
    taskiq = ["-m", "taskiq", "worker", f"programs.on_taskiq:{broker}", "--log-level", "WARNING"]
    return [*taskiq, "--workers", str(processes), "--max-async-tasks", str(slots)]
