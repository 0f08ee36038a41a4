"""Whether a request to the simulated Bedrock is signed as AWS asks, recomputed by botocore (the extra `aws`)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec import Struct

MOST_SKEW = 300.0  # seconds between the date of a signature and now (AWS, Signature Version 4)

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/([0-9]{8})/([^/,\s]+)/([^/,\s]+)/aws4_request, *"
    r"SignedHeaders=([a-z0-9\-;]+), *Signature=([0-9a-f]{64})"
)


class SignatureError(Exception):
    """A request that AWS refuses with 403; `exception` is the name of the refusal."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(message)
        self.exception = exception


class Keys(Struct, frozen=True):
    """Who may ask: the key pair of a signature with its session's token, and a bearer key; None is not given."""

    access_key: str
    secret_key: str
    token: str | None = None
    bearer: str | None = None


class _Signature(Struct, frozen=True):
    day: str
    region: str
    service: str
    signed: tuple[str, ...]
    value: str


def check(keys: Keys, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes, now: float) -> None:
    """SignatureError unless the request shows the bearer key, or is signed by the key pair.

    `target` is path and query as sent, `now` Unix seconds. The Host line has to be among what is signed, as have all
    lines of `x-amz-`.
    """
    lines = [(name.lower(), value) for name, value in headers]
    named = dict(lines)
    said = named.get("authorization")
    if said is None:
        raise SignatureError("MissingAuthenticationTokenException", "Missing Authentication Token")
    if said.startswith("Bearer "):
        if keys.bearer is None or not hmac.compare_digest(said[7:].encode(), keys.bearer.encode()):
            raise SignatureError("AccessDeniedException", "Authentication failed: the API key is not valid.")
        return
    signature = _read(said, keys)
    _check_coverage(signature, named, keys, now)
    request = AWSRequest(method, f"http://{named['host']}{target}", None, body)
    for name, value in lines:
        if name in signature.signed:
            request.headers[name] = value
    request.context["timestamp"] = named["x-amz-date"]
    signer = SigV4Auth(Credentials(keys.access_key, keys.secret_key), signature.service, signature.region)
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    if not hmac.compare_digest(expected, signature.value):
        raise SignatureError(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided.",
        )


def _read(said: str, keys: Keys) -> _Signature:
    match = _AUTHORIZATION.fullmatch(said)
    if match is None:
        raise SignatureError("IncompleteSignatureException", "The Authorization header is not of Signature Version 4.")
    access_key, day, region, service, signed, value = match.groups()
    if access_key != keys.access_key:
        raise SignatureError("UnrecognizedClientException", "The security token included in the request is invalid.")
    return _Signature(day, region, service, tuple(signed.split(";")), value)


def _check_coverage(signature: _Signature, named: dict[str, str], keys: Keys, now: float) -> None:
    unsigned = [
        name for name in named if (name == "host" or name.startswith("x-amz-")) and name not in signature.signed
    ]
    if unsigned or any(name not in named for name in (*signature.signed, "x-amz-date")):
        raise SignatureError("InvalidSignatureException", "Host, x-amz-date and all of x-amz-* have to be signed.")
    try:
        dated = datetime.strptime(named["x-amz-date"], SIGV4_TIMESTAMP).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise SignatureError("IncompleteSignatureException", "x-amz-date is no date.") from error
    if abs(now - dated) > MOST_SKEW or not named["x-amz-date"].startswith(signature.day):
        raise SignatureError("InvalidSignatureException", "Signature expired or not yet current.")
    if named.get("x-amz-security-token") != keys.token:
        raise SignatureError("UnrecognizedClientException", "The security token included in the request is invalid.")
