"""Errors of AWS, from headers, bodies and frames."""

from __future__ import annotations

import pytest

from collector.dialects.aws import error_of_frame, error_of_response
from collector.model import Frame, Headers, ResponseHead, WireError


def response(status: int, kind: str | None = None) -> ResponseHead:
    return ResponseHead(status, Headers((("x-amzn-errortype", kind),) if kind is not None else ()))


@pytest.mark.parametrize(
    ("status", "header", "body", "error"),
    [
        (
            429,
            "ThrottlingException:http://internal.example/",
            b'{"message":"Too many"}',
            WireError("ThrottlingException", None, "rate_limited"),
        ),
        (403, "AccessDeniedException", b"{}", WireError("AccessDeniedException", None, "auth")),
        (
            400,
            None,
            b'{"__type":"com.example.coral#ValidationException"}',
            WireError("ValidationException", None, "invalid_request"),
        ),
        (429, "ModelNotReadyException", b"", WireError("ModelNotReadyException", None, "overloaded")),
        (424, "ModelErrorException", b"{}", WireError("ModelErrorException", None, "server_error")),
        (
            400,
            "ServiceQuotaExceededException",
            b"{}",
            WireError("ServiceQuotaExceededException", None, "quota_exhausted"),
        ),
        (404, "ResourceNotFoundException", b"{}", WireError("ResourceNotFoundException", None, "not_found")),
        (408, "ModelTimeoutException", b"{}", WireError("ModelTimeoutException", None, "timeout")),
        (400, None, b'{"message":"Some sentence."}', WireError(None, None, "invalid_request")),
        (503, "not a name", b"<html>", WireError(None, None, "overloaded")),
    ],
)
def test_an_answer_names_its_error(status: int, header: str | None, body: bytes, error: WireError) -> None:
    assert error_of_response(body, response(status, header)) == error


@pytest.mark.parametrize(
    ("event", "body", "error"),
    [
        (
            "exception:throttlingException",
            b'{"message":"slow down"}',
            WireError("throttlingException", None, "rate_limited"),
        ),
        (
            "exception:modelStreamErrorException",
            b'{"originalStatusCode":503}',
            WireError("modelStreamErrorException", "503", "server_error"),
        ),
        ("exception:serviceUnavailableException", b"{}", WireError("serviceUnavailableException", None, "overloaded")),
        ("exception:", b"oops", WireError(None, None, "unclassified")),
        ("error:InternalError", b"{}", WireError("InternalError", None, "server_error")),
        ("messageStart", b"{}", None),
        (None, b"{}", None),
    ],
)
def test_a_frame_may_be_an_error(event: str | None, body: bytes, error: WireError | None) -> None:
    assert error_of_frame(Frame(body, event)) == error
