from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from collector.config import ConfigError, FindingSettings, ModelAlias, Settings, Sigv4, routes_of
from collector.config_file import FLAGS, RESERVED_LABELS, VARIABLES, check, key_paths, load, variable_warnings
from collector.config_tree import SETTINGS, Keys, bare_type, keys_below, pattern_of, written

UPSTREAM = "upstream: http://a.example\n"


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str) -> Path:
        file = tmp_path / "semhealth.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


def said(file: Path, environ: dict[str, str] | None = None) -> list[str]:
    return [str(problem) for problem in check(file, environ)]


def test_upstream_alone_is_enough() -> None:
    settings = load(None, {}, upstream="http://a.example/")
    assert settings == Settings(upstream="http://a.example")


def test_what_stands_nearer_to_the_user_wins(write) -> None:
    file = write(UPSTREAM + "listen: 127.0.0.1:1001\nanalysis: {stall_threshold: 1s}\n")
    environ = {"SEMHEALTH_LISTEN": "127.0.0.1:1002"}
    overrides = ["listen=127.0.0.1:1003"]
    assert load(None, {}, upstream="http://a.example").listen == "127.0.0.1:8080"
    assert load(file, {}).listen == "127.0.0.1:1001"
    assert load(file, environ).listen == "127.0.0.1:1002"
    assert load(file, environ, overrides).listen == "127.0.0.1:1003"
    assert load(file, environ, overrides, listen="127.0.0.1:1004").listen == "127.0.0.1:1004"
    assert load(file, environ, overrides, listen=None).listen == "127.0.0.1:1003"


def test_the_file_may_be_named_by_a_variable(write) -> None:
    file = write(UPSTREAM)
    assert load(None, {"SEMHEALTH_CONFIG": str(file)}).upstream == "http://a.example"
    with pytest.raises(ConfigError, match="No such file"):
        load(None, {"SEMHEALTH_CONFIG": str(file) + ".not"})


def test_the_stall_threshold_is_understood_everywhere(write) -> None:
    assert load(write(UPSTREAM + "analysis: {stall_threshold: 300ms}"), {}).analysis.stall_threshold == 0.3
    assert load(write(UPSTREAM), {"SEMHEALTH_STALL_THRESHOLD": "300ms"}).analysis.stall_threshold == 0.3
    assert load(write(UPSTREAM), {}, ["stall_threshold=300ms"]).analysis.stall_threshold == 0.3
    assert load(write(UPSTREAM), {}, ["analysis.stall_threshold=0.3"]).analysis.stall_threshold == 0.3


def test_an_empty_variable_counts_as_unset() -> None:
    assert load(None, {"SEMHEALTH_HEALTH": "", "SEMHEALTH_UPSTREAM": "http://a.example"}).health is None


def test_empty_sections_are_defaults(write) -> None:
    assert load(write(UPSTREAM + "proxy:\nroutes:\nlabel_headers:\n"), {}) == Settings(upstream="http://a.example")


def test_every_problem_is_found_at_once_with_its_path_and_line(write) -> None:
    file = write(
        """\
listen: 8080
routes:
  - name: a b
    upstream: api.example
    contract: none.json
  - upstream: http://a.example
    prefix: a
  - 7
  - name: c
    upstream: http://c.example
    strip_prefix: maybe
    labels: {model: x, team: 1}
proxy:
  worker: 2
  max_head: 10
  connect_timeout: 0
analysis: []
embedder: {kind: used, cpu_share: 2}
log_level: 3
"""
    )
    contract = file.parent / "none.json"
    assert said(file) == [
        (
            "listen: expected host:port, got '8080'; write 127.0.0.1:8080 for this machine alone, "
            "0.0.0.0:8080 for every interface (line 1)"
        ),
        "routes[0].name: expected text that matches ^[a-zA-Z0-9_.-]{1,64}$, got 'a b' (line 3)",
        "routes[0].upstream: expected http(s)://host, got 'api.example' (line 4)",
        f"routes[0].contract: {contract}: cannot be read: No such file or directory (line 5)",
        "routes[1].name: missing; every route needs one (line 6)",
        "routes[1].prefix: expected a path such as / or /openai, got 'a' (line 7)",
        "routes[2]: expected keys and values, got 7 (line 8)",
        "routes[3].prefix: '/' is also the prefix of routes[0]; no two may be alike (line 9)",
        "routes[3].strip_prefix: expected true or false, got 'maybe' (line 11)",
        "routes[3].labels.model: the metrics use this label name themselves; choose another (line 12)",
        "routes[3].labels.team: expected text, got 1; put it in quotes (line 12)",
        "proxy.worker: unknown key; did you mean workers? (line 14)",
        "proxy.max_head: expected a size at least 1KiB, got 10 (line 15)",
        "proxy.connect_timeout: expected a duration above 0s, got 0 (line 16)",
        "analysis: expected keys and values, got a list (line 17)",
        "embedder.kind: expected http, none, sentence-transformers or use, got 'used'; did you mean use? (line 18)",
        "embedder.cpu_share: expected a number at most 1, got 2 (line 18)",
        "log_level: expected debug, error, info or warning, got 3 (line 19)",
    ]


def test_problems_of_variables_overrides_and_flags_say_whose_they_are(write) -> None:
    with pytest.raises(ConfigError) as raised:
        load(
            write(UPSTREAM),
            {"SEMHEALTH_LOG_LEVEL": "loud", "SEMHEALTH_WORKERS": "two"},
            ["cpu_share=0", "nothing=1"],
            listen="here",
        )
    assert sorted(str(problem) for problem in raised.value.problems) == [
        "embedder.cpu_share: expected a number above 0, got 0 (--set)",
        "listen: expected host:port such as 127.0.0.1:8080 or [::1]:8080, got 'here' (--listen)",
        "log_level: expected debug, error, info or warning, got 'loud' (SEMHEALTH_LOG_LEVEL)",
        "nothing: no such key (--set)",
        "proxy.workers: expected a whole number, got 'two' (SEMHEALTH_WORKERS)",
    ]


def test_neither_upstream_nor_routes_is_one_clear_problem(write) -> None:
    assert said(write("")) == ["upstream: missing; set upstream (--upstream URL, SEMHEALTH_UPSTREAM) or list routes"]


def test_upstream_beside_routes_is_the_default_route_unless_its_place_is_taken(write) -> None:
    assert said(write(UPSTREAM + "routes: [{name: b, prefix: /b, upstream: http://b.example}]")) == []
    at_root = said(write(UPSTREAM + "routes: [{name: b, upstream: http://b.example}]"))
    assert at_root == [
        (
            "upstream: stands for a route at /, and routes[0] is at / already; "
            "leave upstream out, or give that route another prefix (line 1)"
        )
    ]
    assert (
        "has that name"
        in said(write(UPSTREAM + "routes: [{name: default, prefix: /b, upstream: http://b.example}]"))[0]
    )


def test_names_and_prefixes_of_routes_must_differ(write) -> None:
    file = write("routes:\n- {name: a, prefix: /a, upstream: http://a}\n- {name: a, prefix: /a/, upstream: http://b}\n")
    assert said(file) == [
        "routes[1].name: 'a' is also the name of routes[0]; no two may be alike (line 3)",
        "routes[1].prefix: '/a' is also the prefix of routes[0]; no two may be alike (line 3)",
    ]


@pytest.mark.parametrize("prefix", ["/-", "/-/", "/-/x"])
def test_the_place_of_the_health_endpoints_is_not_a_prefix(write, prefix: str) -> None:
    assert "/-/healthz" in said(write(f"routes: [{{name: a, prefix: {prefix}, upstream: http://a}}]"))[0]


@pytest.mark.parametrize(
    ("addresses", "clash"),
    [
        ("listen: 127.0.0.1:9464", "admin"),
        ("health: 127.0.0.1:8080", "health"),
        ("health: 0.0.0.0:8080", "health"),
        ("listen: 0.0.0.0:9464", "admin"),
        ("listen: localhost:9464", "admin"),
        ("health: '[::]:9464'", "health"),
        ("health: 127.0.0.2:8080", None),
        ("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0", None),
        ("listen: '[::1]:9464'", None),
    ],
)
def test_ports_that_clash_are_found(write, addresses: str, clash: str | None) -> None:
    paths = [problem.path for problem in check(write(UPSTREAM + addresses))]
    assert paths == ([] if clash is None else [clash])


@pytest.mark.parametrize("upstream", ["http://127.0.0.1:8080/v1", "http://localhost:8080", "http://[::1]:8080"])
def test_forwarding_to_oneself_is_refused(write, upstream: str) -> None:
    for text in (f"upstream: {upstream}", f"routes: [{{name: a, upstream: '{upstream}'}}]"):
        assert "where semhealth itself listens" in said(write(text))[0]


def test_a_key_in_a_url_is_nowhere_repeated(write) -> None:
    file = write("upstream: https://u:hunter2@a.example\nexporters: {otlp: {endpoint: 'http://a:1/?k=hunter2'}}\n")
    problems = said(file, {"SEMHEALTH_LISTEN": "https://u:hunter2@b", "SEMHEALTH_WORKERS": "u:hunter2@b"})
    assert len(problems) == 4
    assert "hunter2" not in "".join(problems)


def test_the_key_for_hmac_must_be_set_and_is_never_repeated(write) -> None:
    file = write(UPSTREAM + "privacy: {text_hash: hmac}")
    assert said(file) == []
    assert "hmac needs a key" in said(file, {})[0]
    assert said(file, {"SEMHEALTH_HMAC_KEY": "k"}) == []
    problems = said(write(UPSTREAM + "privacy: {text_hash: hmac, hmac_key_env: hunter-2}"), {})
    assert len(problems) == 1
    assert "hunter-2" not in problems[0]
    problems = said(write(UPSTREAM + "privacy: {text_hash: hmac, hmac_key_env: hunter2}"), {})
    assert len(problems) == 1
    assert "hunter2" not in problems[0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"type": "object"}', None),
        ("true", None),
        ("{", "not JSON"),
        ("[]", "expected a JSON Schema"),
        ("[" * 9999, "not JSON"),
    ],
)
def test_a_contract_must_be_a_json_schema(write, tmp_path: Path, content: str, problem: str | None) -> None:
    (tmp_path / "contract.json").write_text(content, encoding="utf-8")
    problems = said(write("routes: [{name: a, upstream: http://a, contract: contract.json}]"))
    assert len(problems) == (0 if problem is None else 1)
    assert problem is None or problem in problems[0]


def test_paths_are_relative_to_the_file_or_else_to_the_working_directory(write, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = write(UPSTREAM + "exporters: {exchange_log: {path: log.jsonl}}")
    assert load(file, {}).exporters.exchange_log.path == str(tmp_path / "log.jsonl")
    assert load(file, {}, exchange_log="log.jsonl").exporters.exchange_log.path == str(tmp_path / "elsewhere/log.jsonl")
    assert load(Path("../semhealth.yaml"), {}).exporters.exchange_log.path == str(tmp_path / "log.jsonl")
    with pytest.raises(ConfigError, match="no such directory; make it"):
        load(file, {}, exchange_log="not/there.jsonl")
    with pytest.raises(ConfigError, match="is a directory"):
        load(file, {}, exchange_log=".")


def test_certificates_must_be_readable_and_a_key_needs_its_certificate(write) -> None:
    problems = said(write(UPSTREAM + "proxy: {tls: {ca_file: ca.pem, client_key: key.pem}}"))
    assert [problem.split(":")[0] for problem in problems] == ["proxy.tls.ca_file", "proxy.tls.client_key"]
    file = write(UPSTREAM + "proxy: {tls: {client_key: semhealth.yaml}}")
    assert said(file) == ["proxy.tls.client_key: needs client_cert beside it (line 2)"]


def test_the_admin_port_has_a_token_that_is_one_and_both_files_of_tls(write, tmp_path: Path) -> None:
    for content in ("", "short", "two words that are long", "a-token-of-the-tests\nand-another-of-them"):
        (tmp_path / "token").write_text(content)
        [problem] = said(write(UPSTREAM + "admin_auth: {token_file: token}"))
        assert problem.startswith("admin_auth.token_file: expected one token of at least 16 letters")
        assert not content or content not in problem
    (tmp_path / "token").write_text("a-token-of-the-tests\n")
    file = write(UPSTREAM + "admin_auth: {token_file: token}")
    assert said(file, {"SEMHEALTH_ADMIN_TOKEN": "short"}) == []
    assert said(write(UPSTREAM), {"SEMHEALTH_ADMIN_TOKEN": "a-token-of-the-tests"}) == []
    [problem] = said(write(UPSTREAM), {"SEMHEALTH_ADMIN_TOKEN": "canary"})
    assert problem.startswith("admin_auth.token_env: its variable: expected one token")
    assert "canary" not in problem
    file = write(UPSTREAM + "admin_tls: {cert_file: token}")
    assert said(file) == ["admin_tls.cert_file: needs key_file beside it (line 2)"]
    file = write(UPSTREAM + "admin_tls: {key_file: token}")
    assert said(file) == ["admin_tls.key_file: needs cert_file beside it (line 2)"]
    [problem] = said(write(UPSTREAM + "admin_tls: {cert_file: token, key_file: token}"))
    assert problem.startswith("admin_tls.cert_file: cannot be used with key_file")


def test_headers_that_become_labels_are_lower_case_and_hold_no_secret(write) -> None:
    assert load(write(UPSTREAM + "label_headers: {team: X-Team}"), {}).label_headers == {"team": "x-team"}
    for header in ("Authorization", "x-api-key", "Cookie"):
        assert "holds a secret" in said(write(UPSTREAM + f"label_headers: {{team: {header}}}"))[0]
    assert "expected the name of a request header" in said(write(UPSTREAM + "label_headers: {team: 'a b'}"))[0]


@pytest.mark.parametrize("name", [*sorted(RESERVED_LABELS), "1a", "a-b", "__a", "", "ä"])
def test_label_names_are_those_of_prometheus_and_not_our_own(write, name: str) -> None:
    problems = said(write(UPSTREAM + yaml.safe_dump({"label_headers": {name: "x-team"}}, allow_unicode=True)))
    assert len(problems) == 1
    assert "label name" in problems[0]


def test_labels_are_few(write) -> None:
    headers = ", ".join(f"l{index}: x-l{index}" for index in range(9))
    assert "at most 8 labels" in said(write(UPSTREAM + f"label_headers: {{{headers}}}"))[0]


@pytest.mark.parametrize(
    ("otlp", "valid"),
    [
        ("{endpoint: 'http://127.0.0.1:4318'}", True),
        ("{endpoint: '127.0.0.1:4317', protocol: grpc}", True),
        ("{endpoint: '127.0.0.1:4317'}", False),
        ("{endpoint: 'ftp://127.0.0.1'}", False),
        ("{protocol: udp}", False),
    ],
)
def test_otlp_endpoints_suit_their_protocol(write, otlp: str, valid: bool) -> None:
    assert (said(write(UPSTREAM + f"exporters: {{otlp: {otlp}}}")) == []) is valid


def test_variables_that_mean_nothing_are_warned_about() -> None:
    environ = {
        "SEMHEALTH_UPSTRAEM": "x",
        "SEMHEALTH_UPSTREAM": "x",
        "SEMHEALTH_CONFIG": "x",
        "SEMHEALTH_HMAC_KEY": "x",
        "SEMHEALTH_PORT": "tcp://10.0.0.1:8080",
        "SEMHEALTH_PORT_8080_TCP_ADDR": "10.0.0.1",
        "SEMHEALTH_SERVICE_HOST": "10.0.0.1",
        "SEMHEALTH_SERVICE_PORT_ADMIN": "9464",
        "PATH": "x",
    }
    assert variable_warnings(environ) == [
        "SEMHEALTH_UPSTRAEM: no such variable, it is ignored; did you mean SEMHEALTH_UPSTREAM?"
    ]


def test_the_variable_that_holds_the_key_is_known_by_its_own_name() -> None:
    settings = load(None, {}, ["privacy.hmac_key_env=SEMHEALTH_SECRET_OF_MINE"], upstream="http://a.example")
    assert variable_warnings({"SEMHEALTH_SECRET_OF_MINE": "x"}, settings) == []
    assert len(variable_warnings({"SEMHEALTH_SECRET_OF_MINE": "x"})) == 1


def test_variables_and_flags_name_keys_that_exist() -> None:
    assert {pattern_of(keys) for keys in (*VARIABLES.values(), *FLAGS.values())} <= set(key_paths())


# ---------------------------------------------------------------- every key


def other_value(keys: Keys, type_: inspect.Type, tmp_path: Path) -> str:
    """A valid value of the type that is not the default, as text."""
    bare, unit, _ = bare_type(type_)
    special = {
        "routes[].prefix": "/other",
        "label_headers.<name>": "x-other",
        "routes[].contract": str(tmp_path / "contract.json"),
        "proxy.tls.ca_file": str(tmp_path / "contract.json"),
        "proxy.tls.client_cert": str(tmp_path / "contract.json"),
        "proxy.tls.client_key": str(tmp_path / "contract.json"),
        "exporters.exchange_log.path": str(tmp_path / "log.jsonl"),
        "exporters.otlp.endpoint": "http://127.0.0.1:4318",
        "prices": str(tmp_path / "prices.yaml"),
        "admin_auth.token_file": str(tmp_path / "token"),
        "admin_tls.cert_file": str(tmp_path / "other-cert.pem"),
        "admin_tls.key_file": str(tmp_path / "other-key.pem"),
        "routes[].objectives[].measure": "first_token",
        "routes[].findings.profile": "strict",
        "objective_profile": "strict",
        "findings.profile": "strict",
        "embedder.kind": "none",
        "embedder.http.url": "http://127.0.0.1:8081/v1/embeddings",
        "embedder.http.api": "tei",
        "embedder.http.calibrated_as": "ours@1",
        "embedder.sentence_transformers.backend": "onnx",
    }
    if pattern_of(keys) in special:
        return special[pattern_of(keys)]
    if keys[-1] in ("listen", "admin", "health"):
        return "127.0.0.1:7777"
    if keys[-1] == "upstream":
        return "http://other.example"
    match bare:
        case inspect.FloatType():
            return "777ms" if unit == "seconds" else "0.7"
        case inspect.IntType():
            return "77MiB" if unit == "bytes" else str(max(bare.ge or 0, 7))
        case inspect.BoolType():
            return "false" if keys[-1] == "strip_prefix" else "true"
        case inspect.LiteralType(values=values):
            return str(next(value for value in values if value not in ("use", "sha256", "info", "hmac")))
        case inspect.StrType():
            return "other"
        case _:
            raise AssertionError(bare)


def make_certificate(directory: Path) -> None:
    """`cert.pem` and `key.pem`, each twice."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    for name in ("cert.pem", "key.pem"):
        shutil.copy(directory / name, directory / f"other-{name}")


LEAVES = [(keys, type_) for keys, type_ in keys_below(SETTINGS, ()) if pattern_of(keys) in key_paths()]


@pytest.mark.parametrize(("keys", "type_"), LEAVES, ids=[pattern_of(keys) for keys, _ in LEAVES])
def test_set_reaches_every_key(keys: Keys, type_: inspect.Type, tmp_path: Path, write, monkeypatch) -> None:
    (tmp_path / "contract.json").write_text("{}", encoding="utf-8")
    (tmp_path / "prices.yaml").write_text("tables: {}", encoding="utf-8")
    (tmp_path / "token").write_text("a-token-of-the-tests", encoding="utf-8")
    if keys[0] == "admin_tls":
        make_certificate(tmp_path)
    sigv4 = ", sigv4: {region: us-east-1}" if "sigv4" in keys else ""
    if sigv4:  # whether or not the extra is here
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    file = write(
        "routes: [{name: a, upstream: http://a.example, prefix: /a, objectives: ["
        "{name: quick, measure: duration, at_most: 1s, share: 0.9}, "
        "{name: grounded, measure: groundedness, at_least: 0.5, share: 0.9}], "
        f"findings: {{aliases: [{{asked: a, served: b}}]}}{sigv4}}}]\n"
        "findings: {aliases: [{asked: a, served: b}]}\n"
        "proxy: {tls: {client_cert: contract.json}}\n"
        + ("admin_tls: {cert_file: cert.pem, key_file: key.pem}" if keys[0] == "admin_tls" else "")
    )
    keys = tuple("team" if key == "<name>" else key for key in keys)
    if keys[-1] == "at_least":
        keys = ("routes", 0, "objectives", 1, "at_least")
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    before = msgspec.to_builtins(load(file, environ))
    after = msgspec.to_builtins(load(file, environ, [f"{written(keys)}={other_value(keys, type_, tmp_path)}"]))
    if keys[-1] == "client_cert":  # the file has the same
        before = msgspec.to_builtins(load(None, {}, upstream="http://a.example"))

    def at(tree: object) -> object:
        for key in keys:
            tree = tree.get(key) if isinstance(tree, dict) else tree[key]  # type: ignore[index]
        return tree

    assert at(after) is not None
    assert at(after) != at(before) or pattern_of(keys) == "routes[].sigv4.mode"  # which has one value


# ---------------------------------------------------------------- junk

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates())
KNOWN = st.sampled_from(sorted({str(key) for keys, _ in LEAVES for key in keys} | {"routes"}))
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KNOWN, st.text(max_size=8)), inner, max_size=6)
    ),
    max_leaves=20,
)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def loads_or_refuses(file: Path | None, overrides: list[str], environ: dict[str, str]) -> None:
    try:
        read = load(file, environ, overrides)
    except ConfigError:
        return
    assert msgspec.json.decode(msgspec.json.encode(read), type=Settings) == read
    assert routes_of(read)


@QUICK
@given(st.dictionaries(KNOWN, JUNK, max_size=8))
def test_no_tree_of_junk_raises_anything_but_a_config_error(tmp_path: Path, tree: dict[str, object]) -> None:
    file = tmp_path / "junk.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    loads_or_refuses(file, [], {})


@QUICK
@given(
    st.one_of(st.binary(max_size=200), st.text(alphabet="ab:-[]{}&*!|>'\"#%@?,\n \t<0.", max_size=60).map(str.encode))
)
def test_no_bytes_raise_anything_but_a_config_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "junk.yaml"
    file.write_bytes(content)
    loads_or_refuses(file, [], {})


@QUICK
@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.tuples(st.sampled_from(key_paths()), st.text(max_size=20)).map("=".join))
    ),
    st.dictionaries(st.sampled_from(sorted(VARIABLES)), st.text(max_size=20), max_size=4),
)
def test_no_override_or_variable_raises_anything_but_a_config_error(
    overrides: list[str], environ: dict[str, str]
) -> None:
    loads_or_refuses(None, [override.replace("[]", "[0]").replace("<name>", "team") for override in overrides], environ)


# ---------------------------------------------------------------- objectives


@pytest.mark.parametrize(
    ("objectives", "path", "message"),
    [
        (
            "[{name: a, measure: duration, share: 0.9}]",
            "routes[0].objectives[0].at_most",
            "missing; duration is judged",
        ),
        ("[{name: a, measure: errors, share: 0.9, at_most: 1s}]", "routes[0].objectives[0].at_most", "leave it out"),
        ("[{name: a, measure: groundedness, share: 0.9, at_most: 1s}]", "routes[0].objectives[0].at_least", "missing"),
        ("[{name: a, measure: speed, share: 0.9}]", "routes[0].objectives[0].measure", "expected"),
        ("[{name: a, measure: errors, share: 1.0}]", "routes[0].objectives[0].share", "below 1"),
        ("[{name: a, measure: errors}]", "routes[0].objectives[0].share", "missing; every objective needs one"),
        (
            "[{name: a, measure: errors, share: 0.9}, {name: a, measure: validity, share: 0.9}]",
            "routes[0].objectives[1].name",
            "is taken",
        ),
    ],
)
def test_an_objective_that_cannot_be_judged_is_refused(objectives: str, path: str, message: str, write) -> None:
    file = write(f"routes: [{{name: r, upstream: http://a.example, objectives: {objectives}}}]")
    problems = {problem.path: problem.message for problem in check(file)}
    assert path in problems
    assert message in problems[path]


def test_prices_are_a_file_that_is_read_when_the_configuration_is(tmp_path: Path, write) -> None:
    (tmp_path / "own.yaml").write_text("tables: {house: {models: {m: {input: 1}}}}", encoding="utf-8")
    file = write("upstream: http://a.example\nprices: own.yaml")
    assert load(file, {}).prices == str(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("tables: {house: {models: {m: {output: 1}}}}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"prices: .*own.yaml: not a table of prices"):
        load(file, {})


def test_an_objective_that_is_none_is_refused_with_its_path(write) -> None:
    file = write("routes: [{name: a, upstream: http://a.example, objectives: [false]}]")
    with pytest.raises(ConfigError, match=r"routes\[0\]\.objectives\[0\]: expected keys and values"):
        load(file, {})


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("findings", "path", "message"),
    [
        ("{off: [cut_by_lenght]}", "findings.off[0]", "did you mean cut_by_length?"),
        ("{off: [nonsense]}", "findings.off[0]", "docs/findings/README.md lists them"),
        ("{off: cr_lf}", "findings.off", "expected a list"),
        ("{checked_headers: ['a b']}", "findings.checked_headers[0]", "expected the name of a request header"),
        ("{aliases: [{asked: a}]}", "findings.aliases[0].served", "missing; every alias needs one"),
        ("{aliases: [{asked: '', served: b}]}", "findings.aliases[0].asked", "expected the name of a model"),
        ("{diagnostic_prefixes: [i]}", "findings.diagnostic_prefixes[0]", "expected the beginning of a request id"),
        ("{system_prompt_tokens: 0}", "findings.system_prompt_tokens", "at least 1"),
        ("{overload_load: 1.5}", "findings.overload_load", "at most 1"),
        ("{profile: stern}", "findings.profile", "expected default or strict"),
    ],
)
@pytest.mark.parametrize("where", ["", "routes[0]."])
def test_findings_that_cannot_be_made_are_refused(where: str, findings: str, path: str, message: str, write) -> None:
    route = f", findings: {findings}" if where else ""
    whole = "" if where else f"\nfindings: {findings}"
    file = write(f"routes: [{{name: r, upstream: http://a.example{route}}}]{whole}")
    problems = {problem.path: problem.message for problem in check(file)}
    assert list(problems) == [where + path]
    assert message in problems[where + path]


def test_findings_are_set_for_all_routes_and_for_one(write) -> None:
    settings = load(
        write(
            "routes: [{name: r, upstream: http://a.example, findings: {checked_headers: [X-Tenant], off: [cr_lf]}}]\n"
            "findings: {aliases: [{asked: a, served: b}], retry_storm: 9}"
        ),
        {},
    )
    assert settings.routes[0].findings == FindingSettings(checked_headers=("x-tenant",), off=("cr_lf",))
    assert settings.findings == FindingSettings(aliases=(ModelAlias(asked="a", served="b"),), retry_storm=9)


@pytest.mark.parametrize("spelt", ["TEXT", "json", "BIN"])
def test_a_load_report_is_asked_for_as_the_route_spells_it(spelt: str, write) -> None:
    file = write(f"routes: [{{name: a, upstream: http://a.example, orca: {spelt}}}]")
    assert load(file, {}).routes[0].orca == spelt


@pytest.mark.parametrize("spelt", ["Text", "PROTO", "true", '"TEXT\\r\\nx: y"'])
def test_a_load_report_in_another_format_is_refused(spelt: str, write) -> None:
    file = write(f"routes: [{{name: a, upstream: http://a.example, orca: {spelt}}}]")
    assert [problem.path for problem in check(file)] == ["routes[0].orca"]


def test_no_load_report_is_asked_for_unless_a_route_says_so(write) -> None:
    assert routes_of(load(write(UPSTREAM), {}))[0].orca is None


def test_signatures_and_hosts_pass_or_change_as_a_route_says(write) -> None:
    file = write(
        "routes: [{name: a, upstream: http://a.example, host: preserve}, "
        "{name: b, upstream: http://b.example, prefix: /b, sigv4: {region: us-east-1}}]"
    )
    pytest.importorskip("botocore", reason="the extra `aws` brings botocore")
    first, second = load(file, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}).routes
    assert (first.host, first.sigv4) == ("preserve", None)
    assert (second.host, second.sigv4) == ("upstream", Sigv4(region="us-east-1", service="bedrock", mode="resign"))


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ("host: client", "routes[0].host"),
        ("sigv4: {}", "routes[0].sigv4.region"),
        ("sigv4: {region: US East}", "routes[0].sigv4.region"),
        ("sigv4: {region: us-east-1, mode: sign}", "routes[0].sigv4.mode"),
        ("sigv4: {region: us-east-1, access_key: a}", "routes[0].sigv4.access_key"),
        ("sigv4: {region: us-east-1}, host: preserve", "routes[0].host"),
    ],
)
def test_a_route_that_cannot_sign_is_refused_by_the_key(keys: str, path: str, write) -> None:
    file = write(f"routes: [{{name: a, upstream: http://a.example, {keys}}}]")
    assert [problem.path for problem in check(file)] == [path]


def test_signing_without_credentials_or_without_botocore_is_refused(write, monkeypatch) -> None:
    file = write("routes: [{name: a, upstream: http://a.example, sigv4: {region: us-east-1}}]")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    (problem,) = check(file, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": ""})
    assert problem.path == "routes[0].sigv4"
    assert "AWS_SECRET_ACCESS_KEY" in problem.message
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (problem,) = check(file, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    assert "semhealth[aws]" in problem.message
