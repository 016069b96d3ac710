"""Which functions and programs an operator lets workflows run: a document alone enables nothing."""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from runnel.authoring.calls import AnyFunction
from runnel.errors import NotAllowedError, ProgramNotFoundError

ALL = "*"
_PYTHON = "RUNNEL_ALLOW_PYTHON"
_SHELL = "RUNNEL_ALLOW_SHELL"
# With these a program runs other code than its own. The first lines are for any program, also for
# the shell that starts it: bash as sh runs what PS4 says, if SHELLOPTS asks for traces.
_LOADERS = re.compile(
    r"(LD|DYLD|BASH|GLIBC)_\w*|PATH|SHELLOPTS|BASHOPTS|PS4|ENV|IFS|CDPATH|GCONV_PATH"
    r"|HOME|SHELL|XDG_\w*|EDITOR|VISUAL|\w*PAGER|BROWSER|LESS(OPEN|CLOSE)?|ZDOTDIR|CLASSPATH"
    r"|(PYTHON|PERL|RUBY|PHP|GEM_|NODE_|NPM_|LUA_|TCL|GIT_|SSH_|_?JAVA_|JDK_)\w*",
    re.IGNORECASE,
)


class Functions(msgspec.Struct, frozen=True):
    """`module:name`, `module:*` (what the module defines), `package.*` (and all below), or `*`."""

    entries: tuple[str, ...] = (ALL,)

    def check_name(self, name: str) -> None:
        """Before anything is imported, which runs code; raises NotAllowedError."""
        module = name.partition(":")[0]
        if name not in self.entries and not self._has_module(module):
            raise NotAllowedError("the function", name, setting=_PYTHON)

    def check_found(self, name: str, function: AnyFunction) -> None:
        """A module that is allowed may have imported others: what they define is still theirs."""
        module = getattr(function, "__module__", None)
        if name not in self.entries and not self._has_module(module or ""):
            raise NotAllowedError(
                f"a function of '{module}', which it was given as", name, setting=_PYTHON
            )

    def with_names(self, names: Iterable[str]) -> "Functions":
        return Functions((*self.entries, *names))

    def with_module(self, module: str) -> "Functions":
        return Functions((*self.entries, f"{module}:*"))

    def _has_module(self, module: str) -> bool:
        return any(_covers(entry, module) for entry in self.entries)


class Programs(msgspec.Struct, frozen=True):
    """Names, looked for in the PATH of the worker, or whole paths; `*` stands for all."""

    entries: tuple[str, ...] = (ALL,)

    @property
    def are_all(self) -> bool:
        return ALL in self.entries

    def find(self, program: str, *, cwd: Path) -> str:
        """The path of the program; raises NotAllowedError or ProgramNotFoundError."""
        if not self.are_all and program not in self.entries:
            raise NotAllowedError("the program", program, setting=_SHELL)
        if "/" in program:
            path = Path(program)
            found = str(path if path.is_absolute() else cwd / path)
        else:
            found = shutil.which(program, path=os.environ.get("PATH", os.defpath)) or ""
        if not found or not Path(found).exists():
            raise ProgramNotFoundError(program)
        return str(Path(found).absolute())  # a PATH may be relative, and the program runs in `cwd`

    def check_variables(self, names: Sequence[str]) -> None:
        """Where only some programs may run, none is made to load other code."""
        for name in () if self.are_all else names:
            if _LOADERS.fullmatch(name):
                raise NotAllowedError(
                    "a program with the variable", name, setting=_SHELL, example="all"
                )


def _covers(entry: str, module: str) -> bool:
    if entry == ALL:
        return True
    if entry.endswith(":*"):
        return module == entry[:-2]
    package = entry.removesuffix(".*")
    return entry.endswith(".*") and (module == package or module.startswith(f"{package}."))
