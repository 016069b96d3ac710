"""What must never happen, one file each; all of them look after every step."""

from runnel.testing.simulation.checks.attempts import Attempts
from runnel.testing.simulation.checks.cancelled import Cancelled
from runnel.testing.simulation.checks.errors import Errors
from runnel.testing.simulation.checks.expected import Expected
from runnel.testing.simulation.checks.idle import Idle
from runnel.testing.simulation.checks.inbox import Inbox
from runnel.testing.simulation.checks.joins import Joins
from runnel.testing.simulation.checks.judged import Judged
from runnel.testing.simulation.checks.late import Late
from runnel.testing.simulation.checks.leftovers import Leftovers
from runnel.testing.simulation.checks.letters import Letters
from runnel.testing.simulation.checks.limits import Limits
from runnel.testing.simulation.checks.losses import Losses
from runnel.testing.simulation.checks.owners import Owners
from runnel.testing.simulation.checks.settled import Settled
from runnel.testing.simulation.checks.shares import Shares
from runnel.testing.simulation.checks.signals import Signals
from runnel.testing.simulation.checks.stuck import Stuck
from runnel.testing.simulation.checks.timers import Timers
from runnel.testing.simulation.checks.values import Values
from runnel.testing.simulation.checks.waste import Waste

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
