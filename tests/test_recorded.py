"""Recorded exchanges and HAR files become the events that live traffic would have given."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import BytesSeen, ExchangeEnded, RequestSeen, ResponseSeen
from collector.recorded import Recording, RecordingError, read_file
from collector.wire.heads import request_head, response_head

EXCHANGE: dict[str, Any] = {
    "id": "0001", "provider": "openai", "host": "api.openai.com", "method": "POST", "url_path": "/v1/chat/completions",
    "query": "key=secret", "request_headers": [["Host", "api.openai.com"], ["Content-Length", "3"]],
    "request_body": {"model": "m"}, "status": 200,
    "response_headers": [["Content-Type", "application/json"], ["Transfer-Encoding", "chunked"],
                         ["Date", "Wed, 19 Aug 2026 14:33:20 GMT"], ["X-A", "1"], ["X-A", "2"]],
    "response_body_b64": base64.b64encode(b'{"choices":[]}').decode(), "expected": {"anything": 1},
}  # fmt: skip
HAR: dict[str, Any] = {"log": {"entries": [{
    "startedDateTime": "2026-08-19T14:33:20.000Z",
    "request": {"method": "POST", "url": "https://user:pass@api.example:8443/v1/messages?key=secret",
                "headers": [{"name": "A", "value": "b"}], "postData": {"mimeType": "x", "text": "{}"}},
    "response": {"status": 200, "headers": [{"name": "Date", "value": "Wed, 19 Aug 2026 14:33:50 GMT"}],
                 "content": {"text": "aGk=", "encoding": "base64"}},
}]}}  # fmt: skip


def read(tmp_path: Path, content: str | bytes, name: str = "file.json") -> list[Recording]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return list(read_file(path))


def bodies(recording: Recording) -> tuple[bytes, bytes]:
    seen = [event for event in recording.events if isinstance(event, BytesSeen)]
    up = b"".join(event.data for event in seen if not event.from_upstream)
    return up, b"".join(event.data for event in seen if event.from_upstream)


def test_an_exchange_becomes_its_events(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, json.dumps(EXCHANGE))
    assert (recording.id, recording.host, recording.provider) == ("0001", "api.openai.com", "openai")
    request, _, response, _, end = recording.events
    assert isinstance(request, RequestSeen)
    assert isinstance(response, ResponseSeen)
    assert request.wall == 1_787_150_000.0
    method, target, headers = request_head(request.head)
    assert (method, target) == ("POST", "/v1/chat/completions")
    assert headers.lines == (("host", "api.openai.com"),)
    head = response_head(response.head)
    assert (head.status, head.headers.all("x-a"), head.headers.first("transfer-encoding")) == (200, ["1", "2"], None)
    assert bodies(recording) == (b'{"model":"m"}', b'{"choices":[]}')
    assert end == ExchangeEnded(0, 0.0, "complete", 0.0)
    assert b"secret" not in b"".join(event.head for event in (request, response))


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        (json.dumps([EXCHANGE, {**EXCHANGE, "id": 2}]), ["0001", "2"]),
        (json.dumps(EXCHANGE) + "\n\n" + json.dumps({"status": 200}) + "\n", ["0001", "file:3"]),
        ("\ufeff" + json.dumps(EXCHANGE), ["0001"]),
        ("[]", []),
        (json.dumps({"status": 204}), ["file"]),
        (json.dumps([{"status": "200"}]), ["file[0]"]),
    ],
)  # fmt: skip
def test_a_file_holds_one_a_list_or_lines_of_them(tmp_path: Path, content: str, ids: list[str]) -> None:
    assert [recording.id for recording in read(tmp_path, content)] == ids


def test_a_har_file_holds_entries(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, json.dumps(HAR), "x.har")
    assert (recording.id, recording.host) == ("x[0]", "api.example:8443")
    assert bodies(recording) == (b"{}", b"hi")
    request, _, response, *_ = recording.events
    assert isinstance(request, RequestSeen)
    assert isinstance(response, ResponseSeen)
    assert request_head(request.head)[1] == "/v1/messages"
    assert request.wall + response.at == 1_787_150_030.0  # resets count from the response's date


def test_a_har_entry_without_a_response_failed(tmp_path: Path) -> None:
    har = json.loads(json.dumps(HAR))
    har["log"]["entries"][0]["response"] = {"status": 0}
    (recording,) = read(tmp_path, json.dumps(har), "x.har")
    end = recording.events[-1]
    assert isinstance(end, ExchangeEnded)
    assert end.how == "upstream_failed"
    assert not any(isinstance(event, ResponseSeen) for event in recording.events)


def test_a_body_may_be_text_and_hold_half_a_surrogate_pair(tmp_path: Path) -> None:
    (one,) = read(tmp_path, json.dumps({**EXCHANGE, "request_body": "plain é"}))
    assert bodies(one)[0] == "plain é".encode()
    (two,) = read(tmp_path, json.dumps({**EXCHANGE, "id": "\ud83d", "request_body": {"a": "\ud83d", "b": 10**30}}))
    assert json.loads(bodies(two)[0]) == {"a": "\ud83d", "b": 10**30}
    assert two.id == "?"


def test_a_value_cannot_make_another_header_line(tmp_path: Path) -> None:
    headers = [["A", "b\r\nX-Evil: 1"], ["B\nX-Evil", "1"]]
    (recording,) = read(
        tmp_path, json.dumps({**EXCHANGE, "request_headers": headers, "url_path": "/a b\r\nc", "method": "G T"})
    )
    request = recording.events[0]
    assert isinstance(request, RequestSeen)
    method, target, lines = request_head(request.head)
    assert (method, target) == ("other", "/a%20bc")
    assert lines.first("x-evil") is None


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("", "a.json", "empty"), ("  \n", "a.json", "empty"), ("junk", "a.json", "not JSON"),
        ('{"status":200}\n{"status":\n', "a.jsonl", "a.jsonl:2: not JSON"),
        ("3", "a.json", "not a recorded exchange"),
        ('{"id":"x"}', "a.json", "status"), ('{"status":"many"}', "a.json", "status"),
        ('{"status":20000}', "a.json", "status"),
        ('{"status":200,"response_body_b64":"?"}', "a.json", "not a recorded"),
        ('[{"status":200},{"status":1}]', "a.json", "a.json[1]"), (json.dumps(HAR), "a.json", ".har"),
        ("{}", "a.har", "not HAR"), ("[" * 100_000, "a.har", "not HAR"), ("[" * 100_000, "a.json", "not JSON"),
        (json.dumps(HAR).replace("https://user:pass@api.example", "https://[bad"), "a.har", "entries[0]"),
        (json.dumps(HAR).replace("aGk=", "?"), "a.har", "entries[0]"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_says_which_where_and_why(tmp_path: Path, content: str, name: str, says: str) -> None:
    with pytest.raises(RecordingError, match=r"a\.(json|jsonl|har)") as caught:
        read(tmp_path, content, name)
    assert says in str(caught.value)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read"):
        list(read_file(tmp_path / "nothing.json"))


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*EXCHANGE, "log", "entries"]), inner, max_size=4)
    ),
    max_leaves=10,
)
HEADERS = st.lists(
    st.tuples(st.text(max_size=6), st.text(max_size=6) | st.just("Wed, 19 Aug 2026 14:33:20 GMT")), max_size=3
)
LIKE = st.fixed_dictionaries(
    {"status": st.integers(100, 999) | st.just("200")},
    optional={
        "id": st.integers() | st.text(max_size=4), "method": st.text(max_size=4), "url_path": st.text(max_size=8),
        "request_headers": HEADERS, "response_headers": HEADERS, "request_body": JUNK,
        "response_body_b64": st.binary(max_size=8).map(lambda body: base64.b64encode(body).decode()),
    },
)  # fmt: skip


@given(content=(LIKE | JUNK).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40), har=st.booleans())
def test_any_file_is_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, har: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / ("junk.har" if har else "junk.json")
    path.write_bytes(content)
    recordings, refused = [], ""
    try:
        recordings = list(read_file(path))
    except RecordingError as error:
        refused = str(error)
    assert not refused or str(path) in refused
    for recording in recordings:
        recording.id.encode()
        assert isinstance(recording.events[0], RequestSeen)
        assert isinstance(recording.events[-1], ExchangeEnded)
