"""Kills a process at every call to its store, and checks that a second process recovers.

    from simulation.crash_points import RunJournal, Scenario

    def handlers(journal: RunJournal) -> HandlerRegistry:
        registry = create_builtin_registry()
        registry.register("pay", journal.wrap_handler(pay))
        return registry

    def scenarios() -> list[Scenario]:
        return [Scenario(name="payment", workflow=workflow, handlers=handlers)]

`python -m simulation.crash_points my_module:scenarios` runs each scenario once undisturbed. Then
the command runs the scenario once for every crash point: before each call to the store, and after
the response. The process is killed there, another process resumes on the same data directory, and
the results are compared. Handlers may run again, so they should give the same result each time.

With `--redis` the processes use a private Redis server. The second process detects that the first
process is dead, takes over its leases and issues its tasks again. With `--failed-calls` no process
is killed. Instead one call fails: the call is not made, or its response is lost. The process must
continue.
"""

from simulation.crash_points.journal import RunJournal
from simulation.crash_points.scenario import Scenario, ScenarioCaller
from simulation.crash_points.sweep import (
    SweepOptions,
    SweepReport,
    sweep,
    sweep_failed_calls,
    sweep_resume,
)

__all__ = [
    "RunJournal",
    "Scenario",
    "ScenarioCaller",
    "SweepOptions",
    "SweepReport",
    "sweep",
    "sweep_failed_calls",
    "sweep_resume",
]
