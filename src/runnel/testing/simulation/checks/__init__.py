"""What must never happen, one file each; all of them look after every step."""

from runnel.testing.simulation.checks.attempts import Attempts
from runnel.testing.simulation.checks.cancelled import Cancelled
from runnel.testing.simulation.checks.expected import Expected
from runnel.testing.simulation.checks.inbox import Inbox
from runnel.testing.simulation.checks.joins import Joins
from runnel.testing.simulation.checks.leftovers import Leftovers
from runnel.testing.simulation.checks.limits import Limits
from runnel.testing.simulation.checks.owners import Owners
from runnel.testing.simulation.checks.settled import Settled
from runnel.testing.simulation.checks.stuck import Stuck
from runnel.testing.simulation.checks.timers import Timers

ALL = (
    Settled,
    Joins,
    Owners,
    Inbox,
    Attempts,
    Limits,
    Timers,
    Cancelled,
    Stuck,
    Expected,
    Leftovers,
)
