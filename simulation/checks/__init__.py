"""What must never happen, one file each; all of them look after every step."""

from simulation.checks.attempts import Attempts
from simulation.checks.cancelled import Cancelled
from simulation.checks.errors import Errors
from simulation.checks.expected import Expected
from simulation.checks.idle import Idle
from simulation.checks.inbox import Inbox
from simulation.checks.joins import Joins
from simulation.checks.judged import Judged
from simulation.checks.late import Late
from simulation.checks.leftovers import Leftovers
from simulation.checks.letters import Letters
from simulation.checks.limits import Limits
from simulation.checks.losses import Losses
from simulation.checks.owners import Owners
from simulation.checks.settled import Settled
from simulation.checks.shares import Shares
from simulation.checks.signals import Signals
from simulation.checks.stuck import Stuck
from simulation.checks.timers import Timers
from simulation.checks.values import Values
from simulation.checks.waste import Waste

ALL = (
    Settled,
    Joins,
    Owners,
    Inbox,
    Attempts,
    Losses,
    Limits,
    Idle,
    Signals,
    Timers,
    Late,
    Cancelled,
    Judged,
    Stuck,
    Expected,
    Values,
    Errors,
    Letters,
    Waste,
    Shares,
    Leftovers,
)
