"""Each script is sent with the parts of the prelude that it uses, and with no others."""

from runnel.backends.redis.connection_pool import SCRIPTS, select_prelude

PRELUDE = """-- What several scripts share.

-- How many.
local MOST = 3

local function first(values)
  return values[MOST]
end

-- Uses the one above.
local function second(values)
  return first(values)
end
"""


def test_the_dependencies_of_a_used_part_are_included_before_it() -> None:
    used = select_prelude(PRELUDE, "return second(KEYS)\n")

    assert [line for line in used.splitlines() if line.startswith("local")] == [
        "local MOST = 3",
        "local function first(values)",
        "local function second(values)",
    ]


def test_an_unused_part_is_left_out() -> None:
    assert "second" not in select_prelude(PRELUDE, "return first(KEYS)\n")
    assert select_prelude(PRELUDE, "return secondly(KEYS)\n") == ""


def test_a_script_without_prelude_functions_includes_none() -> None:
    assert "local function" not in SCRIPTS["renew_lease"].text
    assert "local function drop_tasks" in SCRIPTS["commit"].text
