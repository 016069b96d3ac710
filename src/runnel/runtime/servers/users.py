"""Which user a server's programs run as."""

import os
import pwd
import subprocess
from pathlib import Path

# In every list of users, and owner of nothing. initdb needs a user that has a name.
UNPRIVILEGED = "nobody"
ANSWER_LIMIT_S = 60


def user_instead_of_root() -> str | None:
    """For programs that refuse to run as root; None where this process is not root's."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


def give(folder: Path, user: str) -> None:
    """Makes all of `folder` this user's own."""
    entry = pwd.getpwnam(user)
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):  # noqa: PTH118  # a thousand files
            os.chown(path, entry.pw_uid, entry.pw_gid)


def run_as(user: str | None, command: list[str]) -> subprocess.CompletedProcess[str]:
    """`stdout` has both streams; raises OSError, or SubprocessError when it fails."""
    return subprocess.run(  # noqa: S603  # a program that was looked for, no shell
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=ANSWER_LIMIT_S,
        cwd="/",  # a folder that every user may enter
        env={**os.environ, "LC_ALL": "C"},
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
    )
