"""What the simulated Bedrock takes for signed, with requests that botocore's own signer made."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

pytest.importorskip("botocore", reason="the extra `aws` brings botocore")

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from collector.simulator.api import signature_check
from collector.simulator.sigv4 import Keys, SignatureError, check

KEYS = Keys("AKIA", "secret", None, "bearer-key")
TARGET = "/model/sim%3A0/converse"
BODY = b'{"messages": []}'


def signed(token: str | None = None, **headers: str) -> dict[str, str]:
    """The lines of a request signed by botocore a moment ago."""
    request = AWSRequest("POST", f"http://127.0.0.1:1234{TARGET}", None, BODY)
    for name, value in ({"Host": "127.0.0.1:1234"} | headers).items():
        request.headers[name] = value
    SigV4Auth(Credentials("AKIA", "secret", token), "bedrock", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def verdict(lines: dict[str, str], **changes: Any) -> str:
    """The name of the refusal, or `taken`."""
    now = datetime.datetime.now(datetime.UTC).timestamp()
    asked: dict[str, Any] = {"keys": KEYS, "method": "POST", "target": TARGET, "body": BODY, "now": now}
    try:
        check(headers=lines.items(), **(asked | changes))
    except SignatureError as error:
        return error.exception
    return "taken"


def test_what_is_signed_is_taken() -> None:
    assert verdict(signed()) == "taken"
    assert verdict(signed(**{"x-amz-meta": "one  two"})) == "taken"


def test_a_session_needs_its_token() -> None:
    session = Keys("AKIA", "secret", "token")
    assert verdict(signed("token"), keys=session) == "taken"
    assert verdict(signed("other"), keys=session) == "UnrecognizedClientException"
    assert verdict(signed(), keys=session) == "UnrecognizedClientException"


def test_a_bearer_key_is_taken_as_it_is() -> None:
    assert verdict({"Host": "a", "Authorization": "Bearer bearer-key"}) == "taken"
    assert verdict({"Host": "a", "Authorization": "Bearer other"}) == "AccessDeniedException"
    assert verdict({"Host": "a", "Authorization": "Bearer "}, keys=Keys("AKIA", "secret")) == "AccessDeniedException"


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "the body": ({"body": BODY + b" "}, "InvalidSignatureException"),
    "the path": ({"target": "/model/other/converse"}, "InvalidSignatureException"),
    "the method": ({"method": "PUT"}, "InvalidSignatureException"),
    "the time": ({"now": 4e9}, "InvalidSignatureException"),
    "the secret": ({"keys": Keys("AKIA", "other")}, "InvalidSignatureException"),
    "the key": ({"keys": Keys("AKIB", "secret")}, "UnrecognizedClientException"),
}


@pytest.mark.parametrize(("change", "refusal"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_found(change: dict[str, Any], refusal: str) -> None:
    assert verdict(signed(), **change) == refusal


def test_another_host_is_found_as_is_a_line_that_is_not_signed() -> None:
    assert verdict(signed() | {"Host": "127.0.0.1:8080"}) == "InvalidSignatureException"
    assert verdict(signed() | {"x-amz-target": "a"}) == "InvalidSignatureException"


def test_what_is_no_signature_is_named_so() -> None:
    assert verdict({"Host": "a"}) == "MissingAuthenticationTokenException"
    assert verdict({"Host": "a", "Authorization": "AWS4-HMAC-SHA256 nothing"}) == "IncompleteSignatureException"
    undated = signed()
    del undated["X-Amz-Date"]
    assert verdict(undated) == "InvalidSignatureException"


def test_the_keys_are_those_of_the_environment() -> None:
    checks = signature_check({"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "secret"})
    assert checks("POST", TARGET, list(signed().items()), BODY) is None
    wrong = checks("POST", TARGET, list(signed().items()), b"")
    assert wrong is not None
    assert wrong[0] == "InvalidSignatureException"
    with pytest.raises(ValueError, match="needs AWS_ACCESS_KEY_ID"):
        signature_check({})
