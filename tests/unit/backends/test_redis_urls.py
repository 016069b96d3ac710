"""What the URL of a Redis server may say."""

import pytest

from runnel.backends.redis.lines import Lines
from runnel.errors import InputError
from runnel.runtime.clock import RealClock


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://:secret@host:6380/3",
        "redis://user:secret@host/0?client_name=me",
        "rediss://host:6379/0?ssl_cert_reqs=none",
        "unix:///run/redis.sock?db=2",
    ],
)
def test_an_ordinary_url_is_taken(url: str) -> None:
    assert isinstance(Lines(url, RealClock(), call_s=1.0), Lines)


@pytest.mark.parametrize(
    "option",
    ["socket_timeout=5", "max_connections=5", "protocol=3", "decode_responses=true", "foo=1"],
)
def test_an_option_that_is_not_the_urls_to_set_is_named(option: str) -> None:
    url = f"redis://:secret@host:6379/0?{option}"

    with pytest.raises(InputError, match=f"got '{option.partition('=')[0]}'") as caught:
        Lines(url, RealClock(), call_s=1.0)
    assert "secret" not in str(caught.value)


def test_a_text_that_is_no_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(InputError, match="expected the URL of a Redis server") as caught:
        Lines("secret@nowhere", RealClock(), call_s=1.0)
    assert "secret" not in str(caught.value)
