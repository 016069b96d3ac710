"""Ends the process at every call to its store, and checks that a second process makes it good.

    from runnel.testing.crash_points import Diary, Scenario

    def handlers(diary: Diary) -> HandlerRegistry:
        registry = builtin_registry()
        registry.register("pay", diary.noted(pay))
        return registry

    def scenarios() -> list[Scenario]:
        return [Scenario(name="payment", workflow=workflow, handlers=handlers)]

`python -m runnel.testing.crash_points my_module:scenarios` then runs each of them once without a
disturbance, and once for every moment before a call to the store and after it was answered: the
process ends there, at once and without a word, another one resumes on the same data dir, and the
two ends are compared. Handlers may run again, so they should give the same result each time.
"""

from runnel.testing.crash_points.caller import Caller
from runnel.testing.crash_points.diary import Diary
from runnel.testing.crash_points.scenario import Scenario
from runnel.testing.crash_points.sweep import Patience, Report, sweep, sweep_resume

__all__ = ["Caller", "Diary", "Patience", "Report", "Scenario", "sweep", "sweep_resume"]
