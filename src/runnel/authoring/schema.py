"""The way to JSON Schema: importing jsonschema takes about 150 ms, more than a whole cold start.

So it is imported by the first document that has an `input`, and by the first input that does not
plainly fit.
"""

from runnel.authoring.plain_schema import surely_fits
from runnel.core.json_types import Json


def schema_problems(schema: dict[str, Json]) -> list[str]:
    """Why this is not a JSON Schema that can be used; empty when it is one."""
    from runnel.authoring import json_schema

    return json_schema.schema_problems(schema)


def value_problems(schema: dict[str, Json], value: Json, *, where: str) -> list[str]:
    """What is wrong with a value, each with its path below `where`; empty when it fits."""
    if surely_fits(schema, value):
        return []
    from runnel.authoring import json_schema

    return json_schema.value_problems(schema, value, where=where)
