from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import inspect

from collector.config import ConfigError
from collector.config_tree import SETTINGS, Tree, bare_type, keys_below, pattern_of, read_file, type_at, written

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))


def lay(tmp_path: Path, text: str) -> Tree:
    file = tmp_path / "semhealth.yaml"
    file.write_text(text, encoding="utf-8")
    tree = Tree()
    tree.lay_file(file)
    return tree


def test_values_of_a_file_remember_their_lines(tmp_path: Path) -> None:
    tree = lay(tmp_path, "listen: 127.0.0.1:1\nroutes:\n  - name: a\n    prefix: /a\n")
    assert tree.values == {"listen": "127.0.0.1:1", "routes": [{"name": "a", "prefix": "/a"}]}
    assert tree.where(("listen",)) == "line 1"
    assert tree.where(("routes", 0, "prefix")) == "line 4"
    assert tree.where(("routes", 0, "upstream")) == "line 3"


def test_what_is_said_later_wins_and_is_said_where_it_was_said(tmp_path: Path) -> None:
    tree = lay(tmp_path, "routes:\n  - name: a\n    labels: {team: x}\n")
    tree.lay_override("routes[0].labels={team: y}")
    assert tree.values == {"routes": [{"name": "a", "labels": {"team": "y"}}]}
    assert tree.where(("routes", 0, "labels", "team")) == "--set"
    assert tree.where(("routes", 0, "name")) == "line 2"


def test_a_list_grows_by_its_next_index_alone() -> None:
    tree = Tree()
    for override in ("routes[0].name=a", "routes.1.name=b", "routes[3].name=d"):
        tree.lay_override(override)
    assert tree.values == {"routes": [{"name": "a"}, {"name": "b"}]}
    assert [str(problem) for problem in tree.problems] == [
        "routes[3].name: routes has 2 entries, so the next index is 2 (--set)"
    ]


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("stall_threshold=300ms", {"analysis": {"stall_threshold": "300ms"}}),
        ("otlp.endpoint=http://a:1", {"exporters": {"otlp": {"endpoint": "http://a:1"}}}),
        ("workers=2", {"proxy": {"workers": 2}}),
        ("listen=[::1]:80", {"listen": "[::1]:80"}),
        ("listen='[::1]:80'", {"listen": "[::1]:80"}),
        ("health=null", {"health": None}),
        ("health=", {"health": None}),
        ("routes[0].name=123", {"routes": [{"name": "123"}]}),
        ("label_headers.team=x-team", {"label_headers": {"team": "x-team"}}),
        ("trace_parent=true", {"proxy": {"trace_parent": True}}),
        ("upstream=http://a/?b=c", {"upstream": "http://a/?b=c"}),
        (" listen = a:1 ", {"listen": "a:1"}),
    ],
)
def test_set_reads_keys_and_values(override: str, values: object) -> None:
    tree = Tree()
    tree.lay_override(override)
    assert tree.problems == []
    assert tree.values == values


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "timeout=1s",
            (
                "timeout=1s",
                "timeout: ambiguous: write one of embedder.http.timeout, embedder.timeout, validator.timeout, "
                "exporters.otlp.timeout",
            ),
        ),
        ("stall_treshold=1s", "stall_treshold: no such key; did you mean stall_threshold?"),
        ("proxy.stall_threshold=1s", "proxy.stall_threshold: no such key; did you mean analysis.stall_threshold?"),
        ("strip_prefix=a", "strip_prefix: no such key; did you mean routes[0].strip_prefix?"),
        ("listen.x=1", "listen.x: no such key"),
        ("a..b=1", "a..b: expected a dotted key"),
        ("[0]=1", "[0]: expected a dotted key"),
        ("proxy.workers={", "proxy.workers: not a YAML value"),
        ("no equals sign", "expected KEY=VALUE, got 'no equals sign'"),
        ("=1", "expected KEY=VALUE"),
    ],
)
def test_what_set_does_not_understand_is_said(override: str, said: str) -> None:
    tree = Tree()
    tree.lay_override(override)
    assert [str(problem).startswith(said) for problem in tree.problems] == [True], tree.problems
    assert tree.problems[0].where == "--set"


def test_keys_given_twice_and_merge_keys_are_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    tree = lay(tmp_path, "listen: a:1\nproxy: {<<: {}, workers: 2}\nlisten: b:1\n? [x]\n: y\n")
    assert [str(problem) for problem in tree.problems] == [
        "proxy.<<: merge keys are not supported; write the keys out (line 2)",
        "listen: given twice, first on line 1; keep one (line 3)",
        "expected a plain key (line 4)",
    ]
    assert tree.values == {"listen": "a:1", "proxy": {"workers": 2}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML: expected the node content"),
        ("- a", "expected keys and values, got a list"),
        ("text", "expected keys and values, got 'text'"),
        ("a: 1\n---\nb: 2", "not valid YAML: but found another document"),
        ("a: !!python/name:os.system", "not valid YAML: could not determine a constructor"),
        ("a: \x01", "not valid YAML"),
        ("[" * 5000, "nested too deeply"),
        ("a: &a [*a]", "too deeply"),
        (LAUGHS, "more than 50000 values"),
    ],
)
def test_files_that_cannot_be_read_say_why_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    tree = lay(tmp_path, text)
    assert len(tree.problems) == 1
    assert said in str(tree.problems[0])
    assert "\n" not in str(tree.problems[0])


def test_a_scalar_that_yaml_chokes_on_is_one_problem(tmp_path: Path) -> None:
    tree = lay(tmp_path, "listen: 2024-99-99\nadmin: a:1")
    assert [str(problem) for problem in tree.problems] == [
        "listen: put '2024-99-99' in quotes: it cannot be read otherwise (line 1)"
    ]
    assert tree.values == {"listen": None, "admin": "a:1"}


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert lay(tmp_path, "# nothing\n").problems == []


def test_missing_large_and_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    for path, said in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "large", "larger than 10"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_file(path, 10)
    (tmp_path / "binary").write_bytes(b"a: \xff")
    tree = Tree()
    assert not tree.lay_file(tmp_path / "binary")
    assert "not UTF-8 at byte 3" in str(tree.problems[0])


def test_every_key_leads_to_its_type() -> None:
    keys = list(keys_below(SETTINGS, ()))
    assert len(keys) > 50
    for path, type_ in keys:
        assert type_at(path) is not None
        bare, unit, _ = bare_type(type_)
        assert unit is None or isinstance(bare, inspect.FloatType | inspect.IntType)


def test_keys_are_written_as_messages_and_as_documentation_write_them() -> None:
    assert written(("routes", 12, "labels", "a b")) == "routes[12].labels.'a b'"
    assert pattern_of(("routes", 12, "labels", "<name>")) == "routes[].labels.<name>"
