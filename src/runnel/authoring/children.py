"""The child workflow of a node: written down in place, in another file, or known by its name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.files import read_data
from runnel.authoring.place import Place
from runnel.core.checks.json_values import json_problems
from runnel.core.checks.nesting import CHILD_DEPTH_MAX
from runnel.core.checks.values import NAME, TEXT
from runnel.core.checks.wording import quoted
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.errors import InvalidWorkflowError

Resolve: TypeAlias = Callable[[str], Workflow | None]
"""Finds the newest version of a workflow by its name; None when there is none."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """`trail` are the files that led here, so that none can lead back to itself."""

    directory: Path | None
    trail: tuple[Path, ...] = ()
    depth: int = 0


ReadWorkflow: TypeAlias = Callable[[Json, Place, Origin], Workflow | None]


class Children:
    """Reads each file once, however many nodes name it: the workflows they get are one object."""

    def __init__(self, read: ReadWorkflow, resolve: Resolve | None) -> None:
        self._read = read
        self._resolve = resolve
        self._files: dict[Path, Workflow | None] = {}

    def of(self, found: dict[str, Any], place: Place, origin: Origin) -> dict[str, Any]:
        """`child`, and the `config` that is left without it; nothing when it is wrong."""
        config: dict[str, Json] = found.get("config", {})
        given = [key for key in ("definition", "file", "workflow") if key in config]
        if len(given) != 1:
            got = " and ".join(map(quoted, given)) or "none"
            place.refuse(
                "the handler 'workflow' takes one of 'definition', 'file' and 'workflow', "
                f"got {got}"
            )
            return {}
        if origin.depth >= CHILD_DEPTH_MAX:
            place.refuse(f"child workflows are nested deeper than {CHILD_DEPTH_MAX}; flatten them")
            return {}
        key, value = given[0], config[given[0]]
        child = self._child(key, value, place.key(key), origin, str(found.get("id")))
        rest = {name: setting for name, setting in config.items() if name != key}
        return {"config": rest, "child": child}

    def _child(
        self, key: str, value: Json, place: Place, origin: Origin, name: str
    ) -> Workflow | None:
        if key == "workflow":
            return self._named(value, place)
        if key == "file":
            return self._file(value, place, origin)
        if isinstance(value, dict) and "name" not in value:
            value = {"name": name, **value}
        return self._read(value, place, msgspec.structs.replace(origin, depth=origin.depth + 1))

    def _named(self, value: Json, place: Place) -> Workflow | None:
        if not NAME.fits(value):
            place.expected("the name of a workflow", value)
        elif self._resolve is None:
            place.refuse(
                "a workflow can't be named here in this version; write it under 'definition', or "
                "give its 'file'"
            )
        elif (child := self._resolve(value)) is not None:
            return child
        else:
            place.refuse(f"there is no workflow {quoted(value)}; submit it first")
        return None

    def _file(self, value: Json, place: Place, origin: Origin) -> Workflow | None:
        if not TEXT.fits(value):
            place.expected("the path of a file", value)
            return None
        if origin.directory is None:
            place.refuse(
                "files are read only for a document that is a file itself; write the workflow "
                "under 'definition'"
            )
            return None
        path = _resolved(origin.directory / value)
        if path in origin.trail:
            names = [each.name for each in (*origin.trail[origin.trail.index(path) :], path)]
            place.refuse(f"the files lead back to themselves: {' → '.join(names)}; cut it once")
            return None
        if path not in self._files:
            self._files[path] = self._read_file(path, place.file(value), origin)
        return self._files[path]

    def _read_file(self, path: Path, place: Place, origin: Origin) -> Workflow | None:
        try:
            data = read_data(path)
        except InvalidWorkflowError as error:
            for problem in error.problems:
                place.refuse(problem)
            return None
        for problem in json_problems(data, ""):
            place.refuse(problem)
        if place.problems:
            return None
        trail = (*origin.trail, path)
        below = Origin(directory=path.parent, trail=trail, depth=origin.depth + 1)
        return self._read(data, place, below)


def _resolved(path: Path) -> Path:
    """The path itself when it can't be resolved: reading it will say why."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path
