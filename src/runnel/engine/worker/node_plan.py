"""What the tasks of a node have in common, and the call of one of them.

A worker makes a plan once for each handler and config. The config holds the function and the
templates of its arguments.
"""

from runnel.authoring.calls import FunctionCall
from runnel.authoring.context import Context
from runnel.authoring.registry import RegisteredHandler
from runnel.engine.worker.config_templates import CompiledConfig
from runnel.engine.worker.task_run import TaskRun
from runnel.engine.worker.task_values import TaskInputs

# The mean duration up to which calls are short. A hand-over to a thread takes as long.
SHORT_S = 0.0002
# An unknown function counts as this long, so that 16 short calls make it short. A slow call counts
# as SLOW_S at most, so that as many short calls make the function short again.
UNKNOWN_S = 0.001
SLOW_S = 0.01
MEAN_WEIGHT = 0.1


class CallDuration:
    """The mean duration of the calls of a plan in threads. Recent calls count most."""

    __slots__ = ("mean_s",)

    def __init__(self) -> None:
        self.mean_s = UNKNOWN_S

    @property
    def is_short(self) -> bool:
        return self.mean_s < SHORT_S

    def add(self, seconds: float) -> None:
        self.mean_s += MEAN_WEIGHT * (min(seconds, SLOW_S) - self.mean_s)


class NodePlan:
    """What all tasks with the same handler and config have in common."""

    __slots__ = ("config", "duration", "handler")

    def __init__(self, handler: RegisteredHandler, config: CompiledConfig) -> None:
        self.handler = handler
        self.config = config
        self.duration = CallDuration()


class PreparedCall:
    """The call of one run, with its arguments."""

    __slots__ = ("call", "context", "plan", "run", "values")

    def __init__(
        self,
        run: TaskRun,
        plan: NodePlan,
        call: FunctionCall,
        context: Context,
        values: TaskInputs,
    ) -> None:
        self.run = run
        self.plan = plan
        self.call = call
        self.context = context
        self.values = values

    @property
    def masks_secrets(self) -> bool:
        return bool(self.plan.config.secrets) or self.call.knows_secrets
