from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.config import (
    LARGEST,
    LONGEST,
    Analysis,
    ConfigError,
    Problem,
    Proxy,
    Route,
    Settings,
    Upstream,
    extra_labels,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_prefix,
    parse_size,
    parse_upstream,
    routes_of,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300ms", 0.3),
        ("2s", 2.0),
        ("1.5m", 90.0),
        ("1h", 3600.0),
        ("0", 0.0),
        ("45", 45.0),
        ("0.25", 0.25),
        ("2 s", 2.0),
    ],
)
def test_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "1e3", "inf", "nan", "1s2", "1,5s", "1s\n", "١s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a duration such as 300ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KiB", 65_536), ("8MiB", 8_388_608), ("1MB", 1_000_000), ("1.5KiB", 1536), ("2kB", 2000), ("7", 7), ("3B", 3)],
)
def test_sizes_are_read_as_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1TB", "1kib", "1e3", "0.3B", "1.1", "5MiB\n"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a (size such as|whole number of bytes)"):
        parse_size(text)


@given(st.one_of(st.just(0.0), st.floats(min_value=1e-9, max_value=LONGEST)))
def test_a_written_duration_is_read_back_the_same(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=LARGEST))
def test_a_written_size_is_read_back_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text())
def test_texts_are_read_or_refused_by_every_parser(text: str) -> None:
    for parse in (parse_duration, parse_size, parse_upstream, parse_address, parse_prefix):
        with contextlib.suppress(ConfigError):
            parse(text)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com", Upstream("https", "api.openai.com", 443, "")),
        ("https://api.openai.com/", Upstream("https", "api.openai.com", 443, "")),
        ("HTTP://Local_Host:8000/v1/", Upstream("http", "local_host", 8000, "/v1")),
        ("http://[::1]:9/a/b", Upstream("http", "::1", 9, "/a/b")),
        ("http://10.0.0.1", Upstream("http", "10.0.0.1", 80, "")),
    ],
)
def test_an_upstream_is_taken_apart(url: str, expected: Upstream) -> None:
    assert parse_upstream(url) == expected
    assert parse_upstream(str(expected)) == expected


def test_the_authority_names_a_port_only_where_it_is_not_the_schemes_own() -> None:
    assert parse_upstream("https://a.example:443").authority == "a.example"
    assert parse_upstream("http://a.example:443").authority == "a.example:443"
    assert parse_upstream("http://[::1]:80/x").authority == "[::1]"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "api.example",
            "ftp://a",
            "https://",
            "http:///v1",
            "http://a b",
            "http://a\n",
            "http://[::1",
            "http://a:",
        ),
        *(
            "http://a:0",
            "http://a:99999",
            "http://a:x",
            "http://-a",
            "http://a/b//c",
            "http://a/../b",
            "//a",
            "http://ä",
        ),
    ],
)
def test_what_is_no_upstream_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected (http\(s\)://host|a plain path)"):
        parse_upstream(url)


def test_the_message_says_what_was_expected_and_what_was_there() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_upstream("api.example")
    assert str(raised.value) == "expected http(s)://host, got 'api.example'"


@pytest.mark.parametrize(
    "url", ["https://user:hunter2@a.example", "https://a.example/v1?key=hunter2", "https://a.example#hunter2"]
)
def test_a_key_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="keys belong in the headers") as raised:
        parse_upstream(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65_535)),
    ],
)
def test_addresses_are_taken_apart(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", "8080", "localhost", "a:", "a:-1", "a:65536", "::1:8080", "[::1]", "[a]:1", "a b:1", "a:1\n", "a:²"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        parse_address(text)


def test_a_port_alone_is_refused_with_both_ways_to_write_it() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8080 for this machine alone, 0\.0\.0\.0:8080"):
        parse_address(":8080")


@pytest.mark.parametrize(("text", "prefix"), [("/", "/"), ("/a", "/a"), ("/a/", "/a"), ("/a/b", "/a/b")])
def test_prefixes_lose_their_last_slash(text: str, prefix: str) -> None:
    assert parse_prefix(text) == prefix


@pytest.mark.parametrize("text", ["", "a", "//", "/a//b", "/a?b", "/a#b", "/a b", "/../a", "/a\n"])
def test_what_is_no_prefix_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a path such as"):
        parse_prefix(text)


def test_upstream_alone_is_a_route_named_default() -> None:
    assert routes_of(Settings(upstream="HTTP://a.example/v1/")) == (
        Route(name="default", upstream="http://a.example/v1"),
    )


def test_upstream_comes_after_the_routes_it_stands_beside() -> None:
    settings = Settings(
        upstream="http://a.example", routes=(Route(name="b", prefix="/b/", upstream="http://b.example:80/"),)
    )
    assert [(route.name, route.prefix, route.upstream) for route in routes_of(settings)] == [
        ("b", "/b", "http://b.example"),
        ("default", "/", "http://a.example"),
    ]


def test_extra_labels_are_those_of_routes_and_headers_sorted_and_once() -> None:
    routes = (
        Route(name="a", upstream="http://a.example", labels={"team": "x", "app": "y"}),
        Route(name="b", upstream="http://b.example", labels={"zone": "z"}),
    )
    assert extra_labels(Settings(routes=routes, label_headers={"team": "x-team"})) == ("app", "team", "zone")


def test_settings_survive_json() -> None:
    settings = Settings(
        routes=(Route(name="a", upstream="http://a.example", labels={"team": "x"}),),
        proxy=Proxy(workers=2, response_timeout=0.3),
        analysis=Analysis(stall_threshold=0.3),
    )
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


def test_an_error_has_a_line_for_each_problem_and_says_where_it_was_written() -> None:
    error = ConfigError([Problem("a.b", "wrong", "line 3"), Problem("", "unreadable")])
    assert str(error) == "a.b: wrong (line 3)\nunreadable"
    assert [problem.path for problem in error.problems] == ["a.b", ""]
