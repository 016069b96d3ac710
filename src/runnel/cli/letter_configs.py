"""The config with which a dead letter is retried, if it is to be another one."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from runnel.authoring.files import read_data
from runnel.authoring.inputs import parse_assignments
from runnel.authoring.yaml_writing import write_yaml
from runnel.cli.inputs import lay_over, read_value
from runnel.core.effects import DeadLetter
from runnel.core.json_types import Json
from runnel.dead_letters import check_editable, name_of
from runnel.errors import InputError

EDITOR_DEFAULT = "vi"


@dataclass(frozen=True, slots=True)
class Change:
    """What the command line says about it."""

    assignments: Sequence[str]
    file: str | None
    is_edited: bool = False

    def __bool__(self) -> bool:
        return bool(self.assignments) or self.file is not None or self.is_edited

    def of(self, letters: Sequence[DeadLetter]) -> Mapping[str, Json]:
        """The configs of nodes, by id; raises InputError."""
        if not self:
            return {}
        if len(letters) > 1:
            raise InputError("the config of one dead letter can be changed at a time; name it")
        letter = letters[0]
        check_editable(letter)
        config = msgspec.json.decode(letter.config)
        if self.file is not None:
            config = read_value(self.file, "the config")
        if self.assignments:
            given = parse_assignments(self.assignments, what="the config")
            config = lay_over(config, given, "the config")
        if self.is_edited:
            config = _edited(config, letter)
        return {letter.token.node_id: config}


def _edited(config: Json, letter: DeadLetter) -> Json:
    """As the user's editor leaves it; raises InputError when it was left as it was."""
    head = f"# The config of {name_of(letter)}; it is retried when you save and leave.\n"
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(head + write_yaml(config), encoding="utf-8")
        _edit(path)
        changed = read_data(path)
    if changed == config:
        raise InputError("the config was left as it was: nothing is retried; leave out --edit")
    return changed


def _edit(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor is None and not sys.stdin.isatty():
        raise InputError("--edit: there is no terminal to edit in; give --config or --payload-file")
    editor = editor or EDITOR_DEFAULT
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode  # noqa: S603  # the user's own
    except OSError as error:
        raise InputError(f"--edit: the editor '{editor}' can't be run: set $EDITOR") from error
    if code != 0:
        raise InputError(f"--edit: the editor '{editor}' failed, nothing is retried")
