"""Paths to upstreams."""

from __future__ import annotations

import pytest

from collector.config import ConfigError, Route, Settings
from collector.proxy.routes import Origin, destination_of, routes_to


@pytest.mark.parametrize(
    ("url", "origin", "host", "base"),
    [
        ("https://api.example", Origin("https", "api.example", 443), b"api.example", b""),
        ("http://api.example:8080/v1/", Origin("http", "api.example", 8080), b"api.example:8080", b"/v1"),
        ("http://[::1]:81", Origin("http", "::1", 81), b"[::1]:81", b""),
    ],
)
def test_an_upstream_is_where_to_connect_what_to_call_it_and_what_to_put_in_front(
    url: str, origin: Origin, host: bytes, base: bytes
) -> None:
    destination = destination_of(Route(name="r", upstream=url))
    assert (destination.origin, destination.host, destination.base) == (origin, host, base)


def test_upstream_alone_is_one_route_called_default() -> None:
    found = routes_to(Settings(upstream="http://a")).find(b"/any/path?x")
    assert found is not None
    assert found.route == "default"


def test_a_prefix_matches_whole_segments_only_and_queries_do_not_count() -> None:
    routes = routes_to(Settings(routes=(Route(name="a", upstream="http://a", prefix="/a"),)))
    for path in (b"/a", b"/a/", b"/a?x", b"/a/b"):
        assert routes.find(path) is not None
    for path in (b"/ab", b"/", b"/x?/a", b"/%61", b"*"):
        assert routes.find(path) is None


def test_the_server_wide_target_keeps_its_form() -> None:
    found = routes_to(Settings(upstream="http://a/base")).find(b"*")
    assert found is not None
    assert found.target(b"*") == b"*"


def test_a_url_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError):
        routes_to(Settings(upstream="ftp://a"))
