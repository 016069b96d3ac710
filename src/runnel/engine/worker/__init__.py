"""The worker: claims tasks, runs their handlers, reports; it decides nothing and keeps nothing."""

from runnel.engine.worker.worker import Worker

__all__ = ["Worker"]
