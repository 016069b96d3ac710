"""A step of a path is one step, whatever is in it."""

import httpx
import pytest

from runnel.client.transport import quote_path_segment


@pytest.mark.parametrize("text", [".", "..", "a/b", "a?b#c", "%2e", "...", "über"])
def test_what_is_sent_is_one_step_below_the_one_before(text: str) -> None:
    url = httpx.URL(f"http://host/v1/executions/{quote_path_segment(text)}/cancel")

    assert url.raw_path.count(b"/") == 4
    assert url.path == f"/v1/executions/{text}/cancel"
