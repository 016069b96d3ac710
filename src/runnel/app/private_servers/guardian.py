"""A program that starts a server, and a guardian that kills the server when its starter dies.

Run by its path: `python -I -S guardian.py FOLDER USER COMMAND…`. The program forks the guardian and
then becomes the server. Standard input is the lifeline: a pipe whose other end only the starter
holds. The kernel closes it when the starter dies, even after a kill -9. Parent-death signals are
not used: they exist on Linux only, and are sent when the *thread* that started the child ends.

It imports nothing of Runnel and few other modules: it takes 15 ms of each start of a server.
"""

import os
import pwd
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def main(folder: str, user: str, command: list[str]) -> None:
    lifeline = os.dup(0)
    if os.fork() == 0:
        # Forked twice, so that the guardian is not a child of the server.
        if os.fork() == 0:
            _guard(lifeline, server=os.getsid(0), folder=folder)
        os._exit(0)
    os.wait()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    if user:
        _switch_user(user)
    os.execv(command[0], command)  # noqa: S606  # the command of the server, without a shell


def remove_folder(folder: str | Path) -> None:
    """Removes the folder twice, because a dying process may add a file during the first try."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def kill_process_tree(pid: int) -> None:
    """Kills a server and its children, paused or not.

    Paused children of PostgreSQL would not notice that their parent is gone.
    """
    for process_id in suspend_process_tree(pid):
        _send_signal(process_id, signal.SIGKILL)


def suspend_process_tree(pid: int) -> list[int]:
    """Stops a process, then its children, so that no new child is missed; returns their ids."""
    _send_signal(pid, signal.SIGSTOP)
    children = list_children(pid)
    for child in children:
        _send_signal(child, signal.SIGSTOP)
    return [pid, *children]


def list_children(pid: int) -> list[int]:
    pairs = (
        _read_parents_from_proc() if (PROC / "self" / "stat").exists() else _read_parents_from_ps()
    )
    return [child for child, parent in pairs if parent == pid]


def _guard(lifeline: int, *, server: int, folder: str) -> None:
    os.setsid()
    for fd in (0, 1, 2):
        os.close(fd)
    if os.read(lifeline, 1):  # the starter reports that the server has ended
        return
    kill_process_tree(server)
    remove_folder(folder)


def _switch_user(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _read_parents_from_proc() -> list[tuple[int, int]]:
    pairs = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
                # "pid (name) state parent …"; the name may contain any character.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                pairs.append((int(entry.name), int(fields[1])))
    return pairs


def _read_parents_from_ps() -> list[tuple[int, int]]:
    with os.popen("ps -A -o pid=,ppid=") as listing:  # noqa: S605, S607  # a constant; ps is macOS's own
        return [(int(pid), int(parent)) for pid, parent in map(str.split, listing)]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
