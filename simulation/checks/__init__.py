"""The invariants of the simulation, one per file. Most invariants are checked after every step."""

from simulation.checks.attempts import AttemptCheck
from simulation.checks.cancelled import CancellationCheck
from simulation.checks.clean_up import CleanUpCheck
from simulation.checks.dead_letters import DeadLetterCheck
from simulation.checks.errors import ErrorMessageCheck
from simulation.checks.expected import ReferenceCheck
from simulation.checks.idle import IdleSlotCheck
from simulation.checks.inbox import InboxCheck
from simulation.checks.joins import JoinCheck
from simulation.checks.late import LatenessCheck
from simulation.checks.leftovers import LeftoverCheck
from simulation.checks.limits import LimitCheck
from simulation.checks.liveness import WorkerLivenessCheck
from simulation.checks.losses import LostTaskCheck
from simulation.checks.owners import OwnershipCheck
from simulation.checks.settled import SettledStateCheck
from simulation.checks.shares import PartitionShareCheck
from simulation.checks.signals import SignalCheck
from simulation.checks.stuck import StuckExecutionCheck
from simulation.checks.timers import TimerCheck
from simulation.checks.values import ComputedValueCheck
from simulation.checks.waste import WastedWorkCheck

ALL_CHECKS = (
    SettledStateCheck,
    JoinCheck,
    OwnershipCheck,
    InboxCheck,
    AttemptCheck,
    LostTaskCheck,
    LimitCheck,
    IdleSlotCheck,
    SignalCheck,
    TimerCheck,
    LatenessCheck,
    CancellationCheck,
    CleanUpCheck,
    WorkerLivenessCheck,
    StuckExecutionCheck,
    ReferenceCheck,
    ComputedValueCheck,
    ErrorMessageCheck,
    DeadLetterCheck,
    WastedWorkCheck,
    PartitionShareCheck,
    LeftoverCheck,
)
