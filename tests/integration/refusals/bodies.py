"""Requests with bodies that are unreadable, too large, or of the wrong media type."""

from tests.integration.refusals.refused_request import (
    DEEP,
    HALF,
    MALFORMED,
    RUN,
    SUBMIT,
    RefusedRequest,
)

UNFOLDING = b"a: &a [1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + number, 98 + number, b",".join([b"*%c" % (97 + number)] * 10))
    for number in range(8)
)
BODIES = [
    RefusedRequest(
        name="empty body", path=SUBMIT, raw=b"", status=400, code=MALFORMED, says="empty"
    ),
    RefusedRequest(
        name="half JSON", path=SUBMIT, raw=b'{"name":', status=400, code=MALFORMED, says="line 1"
    ),
    RefusedRequest(
        name="JSON with NaN", path=SUBMIT, raw=b'{"x": NaN}', status=400, code=MALFORMED, says="NaN"
    ),
    RefusedRequest(
        name="a key given twice",
        path=SUBMIT,
        raw=b'{"name":"a","name":"b"}',
        status=400,
        code=MALFORMED,
        says="twice",
    ),
    RefusedRequest(
        name="too deep", path=SUBMIT, raw=DEEP.encode(), status=400, code=MALFORMED, says="deep"
    ),
    RefusedRequest(
        name="not UTF-8", path=SUBMIT, raw=b"\xff\xfe{}", status=400, code=MALFORMED, says="UTF-8"
    ),
    RefusedRequest(
        name="a number of digits without end",
        path=SUBMIT,
        raw=b'{"x": ' + b"9" * 5_000 + b"}",
        status=400,
        code=MALFORMED,
        says="digits",
    ),
    RefusedRequest(
        name="a body of 11 MB",
        path=SUBMIT,
        raw=b" " * 11_000_000,
        status=413,
        code="body_too_large",
        says="10,000,000",
    ),
    RefusedRequest(
        name="a form",
        path=SUBMIT,
        raw=b"a=b",
        kind="application/x-www-form-urlencoded",
        status=415,
        code="unsupported_media",
        says="application/json",
    ),
    RefusedRequest(
        name="plain text",
        path=RUN,
        raw=b"{}",
        kind="text/plain",
        status=415,
        code="unsupported_media",
        says="text/plain",
    ),
    RefusedRequest(
        name="no content type",
        path=RUN,
        raw=b"{}",
        kind="",
        status=415,
        code="unsupported_media",
        says="nothing",
    ),
    RefusedRequest(
        name="YAML where there is none",
        path=RUN,
        raw=b"a: 1",
        kind="application/yaml",
        status=415,
        code="unsupported_media",
    ),
    RefusedRequest(
        name="YAML with a tab",
        path=SUBMIT,
        raw=b"name: a\n\tnodes: 1",
        kind="application/yaml",
        status=400,
        code=MALFORMED,
        says="tab",
    ),
    RefusedRequest(
        name="YAML of aliases that unfold",
        path=SUBMIT,
        raw=UNFOLDING,
        kind="application/yaml",
        status=400,
        code=MALFORMED,
    ),
    RefusedRequest(
        name="YAML that makes objects",
        path=SUBMIT,
        raw=b"!!python/object/apply:os.system ['true']",
        kind="application/yaml",
        status=400,
        code=MALFORMED,
    ),
    RefusedRequest(
        name="half of a surrogate pair",
        path=RUN,
        raw=b'{"input": "' + HALF.encode() + b'"}',
        status=422,
        code="bad_payload",
        says="surrogate",
    ),
]
