"""A quoted text stays one segment of a path, whatever characters it holds."""

import httpx
import pytest

from runnel.client.transport import quote_path_segment


@pytest.mark.parametrize("text", [".", "..", "a/b", "a?b#c", "%2e", "...", "über"])
def test_a_quoted_text_is_exactly_one_path_segment(text: str) -> None:
    url = httpx.URL(f"http://host/v1/executions/{quote_path_segment(text)}/cancel")

    assert url.raw_path.count(b"/") == 4
    assert url.path == f"/v1/executions/{text}/cancel"
