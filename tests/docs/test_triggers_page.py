"""docs/reference/triggers.md lists the fields of schedules and webhooks with their defaults."""

import re
from pathlib import Path

import msgspec
import pytest

from runnel.triggers.due_ticks import CATCH_UP_MAX
from runnel.triggers.schedule_checks import INPUT_BYTES_MAX, build_tick_document
from runnel.views.trigger import Schedule, Webhook, WebhookKind

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference/triggers.md").read_text(encoding="utf-8")
SCHEDULES_GUIDE = (DOCS / "guides/schedules.md").read_text(encoding="utf-8")
# Set by Runnel, not by the caller.
INTERNAL_FIELDS = {"own_labels", "created_at", "format"}
NEWEST = "newest"


def read_fields(section: str) -> dict[str, str]:
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (?:`--|the argument)", text, re.MULTILINE)
    return {name: default.strip("`") for name, default in rows}


def format_default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return "{}"
    if field.default is None:
        return NEWEST if field.name == "version" else "none"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


@pytest.mark.parametrize(("section", "kind"), [("Schedule", Schedule), ("Webhook", Webhook)])
def test_every_field_is_listed_with_its_default(section: str, kind: type[msgspec.Struct]) -> None:
    fields = {
        field.name: format_default(field)
        for field in msgspec.structs.fields(kind)
        if field.name not in INTERNAL_FIELDS
    }

    assert read_fields(section) == fields


def test_every_kind_of_webhook_is_listed() -> None:
    assert all(f"\n| `{kind.value}` |" in PAGE for kind in WebhookKind)


def test_limits_are_those_of_the_code() -> None:
    assert f"up to {INPUT_BYTES_MAX // 1024} KiB" in PAGE
    assert f"from 0 to {CATCH_UP_MAX}" in PAGE


def test_the_guide_lists_every_template_of_a_tick() -> None:
    tick = build_tick_document(Schedule(id="nightly", workflow="report", cron="@daily"), 0.0)

    assert isinstance(tick, dict)
    assert all(f"`tick.{name}`" in SCHEDULES_GUIDE for name in tick)
