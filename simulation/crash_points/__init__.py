"""Ends the process at every call to its store, and checks that a second process makes it good.

    from simulation.crash_points import Diary, Scenario

    def handlers(diary: Diary) -> HandlerRegistry:
        registry = builtin_registry()
        registry.register("pay", diary.noted(pay))
        return registry

    def scenarios() -> list[Scenario]:
        return [Scenario(name="payment", workflow=workflow, handlers=handlers)]

`python -m simulation.crash_points my_module:scenarios` then runs each of them once without a
disturbance, and once for every moment before a call to the store and after it was answered: the
process ends there, at once and without a word, another one resumes on the same data dir, and the
two ends are compared. Handlers may run again, so they should give the same result each time.

With `--redis` the same happens to processes on a Redis server, which is started for it: the second
one finds out that the first is dead, takes its leases over and has its tasks issued again. With
`--failed-calls` no process ends: one call fails, not made or made without an answer, and
the process has to go on by itself.
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
