"""Signing anew for AWS, against the signatures that AWS published and against botocore's own."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

pytest.importorskip("botocore", reason="the extra `aws` brings botocore")

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from collector.aws import Signer
from collector.proxy.signing import signed_request

# The keys and the time of AWS's test suite for Signature Version 4 (aws-sig-v4-test-suite).
NOW = datetime.datetime(2015, 8, 30, 12, 36, tzinfo=datetime.UTC)
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SUITE = Signer("AKIDEXAMPLE", SECRET, None, "us-east-1", "service")
# Its cases by name: the request, its body, what is signed, and the signature.
CASES = {
    "get-vanilla": (
        b"GET / HTTP/1.1\r\nHost:example.amazonaws.com\r\n\r\n",
        b"",
        "host;x-amz-date",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-vanilla-query-order-key-case": (
        b"GET /?Param2=value2&Param1=value1 HTTP/1.1\r\nHost:example.amazonaws.com\r\n\r\n",
        b"",
        "host;x-amz-date",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "post-vanilla": (
        b"POST / HTTP/1.1\r\nHost:example.amazonaws.com\r\n\r\n",
        b"",
        "host;x-amz-date",
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "post-x-www-form-urlencoded": (
        b"POST / HTTP/1.1\r\nContent-Type:application/x-www-form-urlencoded\r\nHost:example.amazonaws.com\r\n\r\n",
        b"Param1=value1",
        "content-type;host;x-amz-date",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
}

CONVERSE = (
    b"POST /model/anthropic.claude-sonnet-4-v1%3A0/converse?a=1%2F2&b HTTP/1.1\r\n"
    b"Content-Type: application/json\r\nX-Amzn-Bedrock-Trace: ENABLED\r\nX-Amz-Meta:  two   words \r\n"
    b"User-Agent: Boto3\r\nHost: bedrock-runtime.eu-central-1.amazonaws.com\r\nContent-Length: 18\r\n\r\n"
)
BODY = b'{"messages": [{}]}'
STALE = (
    b"authorization: AWS4-HMAC-SHA256 Credential=other\r\nX-Amz-Date: 20150101T000000Z\r\n"
    b"X-AMZ-Security-Token: other\r\nDate: Fri, 01 Jan 2015 00:00:00 GMT\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"
)


def named(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:-2]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize(("head", "body", "signed", "signature"), CASES.values(), ids=CASES.keys())
def test_the_published_requests_get_the_published_signatures(
    head: bytes, body: bytes, signed: str, signature: str
) -> None:
    sent = named(signed_request(head, body, SUITE, NOW.timestamp()))
    assert sent["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={signed}, Signature={signature}"
    )
    assert sent["x-amz-date"] == "20150830T123600Z"


@pytest.mark.parametrize("token", [None, "session//token="])
def test_a_request_to_bedrock_is_signed_as_botocore_signs_it(token: str | None, monkeypatch: Any) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: NOW)
    url = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/anthropic.claude-sonnet-4-v1%3A0/converse?a=1%2F2&b"
    request = AWSRequest("POST", url, None, BODY)
    for name, value in (
        ("Content-Type", "application/json"),
        ("X-Amz-Meta", "two words"),
    ):
        request.headers[name] = value
    botocore.auth.SigV4Auth(Credentials("AKIA", SECRET, token), "bedrock", "eu-central-1").add_auth(request)
    signer = Signer("AKIA", SECRET, token, "eu-central-1", "bedrock")
    sent = named(signed_request(CONVERSE, BODY, signer, NOW.timestamp()))
    assert sent["authorization"] == request.headers["Authorization"]
    assert sent.get("x-amz-security-token") == token


def test_an_earlier_signature_leaves_no_line_and_no_trace() -> None:
    fresh = signed_request(CONVERSE, BODY, SUITE, NOW.timestamp())
    stale = signed_request(CONVERSE.replace(b"User-Agent", STALE + b"User-Agent"), BODY, SUITE, NOW.timestamp())
    assert stale == fresh


def test_every_other_line_stays_byte_for_byte() -> None:
    sent = signed_request(CONVERSE, BODY, SUITE, NOW.timestamp())
    assert sent.startswith(CONVERSE[:-4] + b"\r\nX-Amz-Date: ")
    assert sent.endswith(b"\r\n\r\n")


def test_what_a_forward_proxy_is_asked_is_signed_like_what_the_upstream_is_asked() -> None:
    asked = CONVERSE.replace(b"POST /", b"POST http://bedrock-runtime.eu-central-1.amazonaws.com/")
    through, direct = (named(signed_request(head, BODY, SUITE, NOW.timestamp())) for head in (asked, CONVERSE))
    assert through == direct


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_another_body_is_another_signature(one: bytes, other: bytes) -> None:
    signatures = [
        named(signed_request(CONVERSE, body, SUITE, NOW.timestamp()))["authorization"] for body in (one, other)
    ]
    assert (signatures[0] == signatures[1]) == (one == other)
