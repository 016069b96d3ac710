"""The error for a function that can't be imported."""

import pytest

from runnel.authoring.functions import NotImportableError, import_function


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os:nope", "can't find 'os:nope': 'os' has no 'nope'"),
        (
            "os:environ.nope",
            "can't find 'os:environ.nope': 'os:environ' has no 'nope'",
        ),
        (
            "os:path.sep.nope",
            "can't find 'os:path.sep.nope': 'os:path.sep' has no 'nope'",
        ),
        ("os:environ", "'os:environ' is a _Environ, expected a function"),
    ],
)
def test_an_error_about_a_missing_attribute_does_not_show_the_value(name: str, said: str) -> None:
    with pytest.raises(NotImportableError) as raised:
        import_function(name)

    assert str(raised.value) == said
