"""A decision larger than a commit goes out in parts whose order a crash in between can't hurt."""

from runnel.core.decision import Decision
from runnel.core.effects import DropTask
from runnel.core.events import NodeCancelled
from runnel.core.ids import NodeId
from runnel.engine.orchestrator.batch import Batch
from runnel.ports.store import CommitLimits
from runnel.testing.conformance.values import token


def test_tasks_are_dropped_before_the_history_says_why() -> None:
    batch = Batch(1.0, CommitLimits(writes=2))
    cancelled = [NodeCancelled(node=NodeId(name), reason="cancelled") for name in "abc"]
    drops = [DropTask(token(name)) for name in "abc"]

    batch.add("x", Decision(events=[*cancelled], effects=[*drops]), None)
    commits = list(batch.seal(1))

    told = [number for number, commit in enumerate(commits) if commit.histories]
    dropped = [number for number, commit in enumerate(commits) if commit.dropped]
    assert len(commits) > 1
    assert max(dropped) <= min(told)
