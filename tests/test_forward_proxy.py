"""Which upstreams are reached through a forward proxy, and through which."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.config import ConfigError, Route
from collector.config_file import check, load
from collector.forward_proxy import ForwardProxy, forward_proxy_of, parse_forward_proxy

PROXY = ForwardProxy("proxy.test", 3128)
SET = {"https_proxy": "http://proxy.test:3128"}


def route(upstream: str = "https://api.example/v1", proxy: str | None = None) -> Route:
    return Route(name="r", upstream=upstream, proxy=proxy)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"https_proxy": ""}, None),
        ({"http_proxy": "http://proxy.test:3128"}, None),
        (SET, PROXY),
        ({"HTTPS_PROXY": "http://proxy.test:3128"}, PROXY),
        ({"https_proxy": "proxy.test:3128/"}, PROXY),
        ({"all_proxy": "http://proxy.test:3128"}, PROXY),
        ({**SET, "HTTPS_PROXY": "http://other.test"}, PROXY),
        ({**SET, "all_proxy": "http://other.test"}, PROXY),
        ({"https_proxy": "http://[fd00::1]"}, ForwardProxy("fd00::1", 80)),
        ({"https_proxy": "http://a%40b:c:d@p.test"}, ForwardProxy("p.test", 80, b"Basic YUBiOmM6ZA==")),
    ],
)
def test_the_environment_says_it_by_the_upstreams_scheme(
    environ: dict[str, str], expected: ForwardProxy | None
) -> None:
    assert forward_proxy_of(route(), environ) == expected


@pytest.mark.parametrize(
    ("no_proxy", "upstream", "is_exempt"),
    [
        ("*", "https://api.example", True),
        ("api.example", "https://api.example", True),
        ("API.example", "https://api.example", True),
        ("example", "https://api.example", True),
        (".example", "https://api.example", True),
        ("*.example", "https://api.example", True),
        ("ample", "https://api.example", False),
        ("other, api.example:443", "https://api.example", True),
        ("api.example:8443", "https://api.example", False),
        ("", "https://api.example", False),
        (",", "https://api.example", False),
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("10.0.0.0/8", "https://api.example", False),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("[fd00::1]", "https://[fd00::1]", True),
        ("fd00::/8", "https://[fd00::1]", True),
    ],
)
def test_no_proxy_is_read_as_by_curl(no_proxy: str, upstream: str, is_exempt: bool) -> None:
    expected = None if is_exempt else PROXY
    assert forward_proxy_of(route(upstream), {**SET, "NO_PROXY": no_proxy}) == expected


@pytest.mark.parametrize(
    "upstream", ["https://localhost:8443", "https://127.0.0.1", "https://127.9.9.9", "https://[::1]"]
)
def test_an_upstream_on_this_machine_is_reached_directly_unless_its_route_says_otherwise(upstream: str) -> None:
    assert forward_proxy_of(route(upstream), SET) is None
    assert forward_proxy_of(route(upstream, "http://proxy.test:3128"), {}) == PROXY


def test_a_route_comes_before_the_environment() -> None:
    assert forward_proxy_of(route(proxy="none"), SET) is None
    assert forward_proxy_of(route(proxy="http://other.test"), {**SET, "no_proxy": "*"}) == ForwardProxy(
        "other.test", 80
    )


@pytest.mark.parametrize(
    "url",
    ["https://secret.test", "socks5://secret.test:1080", "http://", "http://secret.test:0", "http://secret.test:x",
     "http://secret.test/path", "http://secret.test?q", "http://sec ret.test", "http://[secret"],
)  # fmt: skip
def test_what_is_no_proxy_that_can_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="https_proxy: expected a proxy") as refused:
        forward_proxy_of(route(), {"https_proxy": url})
    assert "secret" not in str(refused.value)


def test_credentials_belong_in_the_environment() -> None:
    with pytest.raises(ConfigError, match="without a user") as refused:
        parse_forward_proxy("http://user:secret@proxy.test", "routes[0].proxy", may_have_user=False)
    assert "secret" not in str(refused.value)


def test_settings_with_a_proxy_that_cannot_be_used_are_refused_before_anything_starts() -> None:
    said = {"SEMHEALTH_UPSTREAM": "https://api.example", "https_proxy": "socks5://secret.test:1080"}
    with pytest.raises(ConfigError, match="https_proxy: expected a proxy") as refused:
        load(None, said)
    assert "secret" not in str(refused.value)
    assert load(None, {**said, "no_proxy": "api.example"}).upstream == "https://api.example"


@pytest.mark.parametrize(
    ("proxy", "is_good"), [("none", True), ("http://p.test:1", True), ("http://u:k@p.test", False)]
)
def test_a_routes_proxy_is_checked_with_its_file(tmp_path: Path, proxy: str, is_good: bool) -> None:
    file = tmp_path / "semhealth.yaml"
    file.write_text(f"routes:\n  - {{name: a, upstream: 'https://api.example', proxy: '{proxy}'}}\n")
    problems = check(file)
    assert [problem.path for problem in problems] == ([] if is_good else ["routes[0].proxy"])
    assert not any("u:k" in str(problem) for problem in problems)
