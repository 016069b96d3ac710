"""`runnel schema`"""

from runnel.cli import exits


def schema() -> int:
    """Print the JSON Schema of workflow files, for editors.

    In a YAML file: # yaml-language-server: $schema=runnel.schema.json
    """
    from runnel.authoring.document_schema import shipped_schema

    print(shipped_schema(), end="")
    return exits.OK
