"""A document as YAML that people like to read; imported late, as everything of YAML is."""

import re

import yaml

from runnel.core.json_types import Json

WIDTH = 100
# Breaks of lines to YAML, which read back as a space where they are not escaped.
_BREAKS = re.compile("[\x85\u2028\u2029]")


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, and writes each value out instead of naming it twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002  # as PyYAML calls it
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if _BREAKS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def write_yaml(document: Json) -> str:
    """Reads back as the same document; keys keep their order."""
    return str(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    )
