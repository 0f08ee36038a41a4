"""Reads settings from YAML, the environment, `--set` and flags, and finds everything that is wrong with them.

What is said later wins: defaults, then the file, the environment, `--set KEY=VALUE`, and flags. All of it is laid into
one tree of plain values that remembers where each was said; the tree is then read once, against the types of config.py.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import inspect

from collector.admin_token import parse_token, read_token
from collector.aws import signer_of
from collector.catalogue import FINDING_RULE, LABELS, METRICS, label_names
from collector.config import (
    ConfigError,
    Problem,
    Route,
    Settings,
    extra_labels,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_prefix,
    parse_size,
    parse_upstream,
    routes_of,
    shown,
)
from collector.config_tree import (
    SETTINGS,
    Keys,
    Tree,
    bare_type,
    is_section,
    keys_below,
    kind_of,
    pattern_of,
    read_file,
    said,
    suggest,
    written,
)
from collector.contracts.reading import read_contract
from collector.contracts.rule import MAX_RULES
from collector.embedding.installed import what_is_missing
from collector.forward_proxy import NONE as NO_FORWARD_PROXY
from collector.forward_proxy import forward_proxy_of, parse_forward_proxy
from collector.prices import read_table

# Environment variable → key. Empty variables count as unset, as in `${NAME:-}` of a compose file.
# None may be called SEMHEALTH_PORT or …_SERVICE_HOST: Kubernetes sets those itself for a service named semhealth.
VARIABLES: dict[str, Keys] = {
    "SEMHEALTH_UPSTREAM": ("upstream",),
    "SEMHEALTH_LISTEN": ("listen",),
    "SEMHEALTH_ADMIN": ("admin",),
    "SEMHEALTH_ADMIN_TOKEN_FILE": ("admin_auth", "token_file"),
    "SEMHEALTH_HEALTH": ("health",),
    "SEMHEALTH_LOG_LEVEL": ("log_level",),
    "SEMHEALTH_WORKERS": ("proxy", "workers"),
    "SEMHEALTH_DRAIN_TIMEOUT": ("proxy", "drain_timeout"),
    "SEMHEALTH_CA_FILE": ("proxy", "tls", "ca_file"),
    "SEMHEALTH_STALL_THRESHOLD": ("analysis", "stall_threshold"),
    "SEMHEALTH_EMBEDDER": ("embedder", "kind"),
    "SEMHEALTH_OTLP_ENDPOINT": ("exporters", "otlp", "endpoint"),
    "SEMHEALTH_OTLP_PROTOCOL": ("exporters", "otlp", "protocol"),
    "SEMHEALTH_OTLP_INTERVAL": ("exporters", "otlp", "interval"),
    "SEMHEALTH_EXCHANGE_LOG": ("exporters", "exchange_log", "path"),
    "SEMHEALTH_TEXT_HASH": ("privacy", "text_hash"),
}
FILE_VARIABLE = "SEMHEALTH_CONFIG"
KEY_VARIABLE = "SEMHEALTH_HMAC_KEY"
TOKEN_VARIABLE = "SEMHEALTH_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
FLAGS: dict[str, Keys] = {
    "upstream": ("upstream",),
    "listen": ("listen",),
    "admin": ("admin",),
    "health": ("health",),
    "exchange_log": ("exporters", "exchange_log", "path"),
}

MAX_CERTIFICATE = 4 << 20  # bytes
MAX_LABELS = 8  # labels that users add
MAX_LABEL_VALUE = 128  # bytes, as the exporter cuts them

_KUBERNETES = re.compile(
    r"SEMHEALTH(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)"
)


# ---------------------------------------------------------------- what others call


def load(path: Path | None, environ: Mapping[str, str], overrides: Sequence[str] = (), **flags: str | None) -> Settings:
    """The settings, or ConfigError with every problem.

    Without `path` the file is the one that SEMHEALTH_CONFIG names, if any. `overrides` are `KEY=VALUE`; `flags` are
    those of FLAGS, None where not given. Relative paths in the file are relative to the file, others to the working
    directory; all are absolute in the settings.
    """
    if path is None and environ.get(FILE_VARIABLE):
        path = Path(environ[FILE_VARIABLE])
    settings, problems = _assemble(path, environ, overrides, flags)
    if problems:
        raise ConfigError(problems)
    return settings


def check(path: Path, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Every problem of a file. Given `environ`, its variables count, and what must surround the file is checked too."""
    return _assemble(path, environ, (), {})[1]


def checked(path: Path) -> tuple[Settings, list[Problem]]:
    """The settings of a file alone, and its problems; with problems the settings are not what was meant."""
    return _assemble(path, None, (), {})


def variable_warnings(environ: Mapping[str, str], settings: Settings | None = None) -> list[str]:
    """A sentence for each SEMHEALTH_ variable that means nothing."""
    known = {*VARIABLES, FILE_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE}
    if settings is not None:
        known |= {settings.privacy.hmac_key_env, settings.admin_auth.token_env}
    return [
        f"{name}: no such variable, it is ignored{suggest(name, sorted(known))}"
        for name in sorted(environ)
        if name.startswith("SEMHEALTH_") and name not in known and _KUBERNETES.fullmatch(name) is None
    ]


def key_paths() -> tuple[str, ...]:
    """Every key that holds one value, as documentation writes it: `routes[].name`, `label_headers.<name>`."""
    return tuple(pattern_of(keys) for keys, type_ in keys_below(SETTINGS, ()) if not is_section(type_))


def _assemble(
    path: Path | None, environ: Mapping[str, str] | None, overrides: Sequence[str], flags: Mapping[str, str | None]
) -> tuple[Settings, list[Problem]]:
    tree = Tree()
    if path is not None and not tree.lay_file(path):
        return Settings(), tree.problems  # or everything would be reported missing
    for name, keys in VARIABLES.items():
        if environ is not None and environ.get(name):
            tree.lay_text(keys, environ[name], name)
    for override in overrides:
        tree.lay_override(override)
    for flag, value in flags.items():
        if value is not None:
            tree.lay_text(FLAGS[flag], value, "--" + flag.replace("_", "-"))
    reader = _Reader(tree, Path.cwd() if path is None else Path(path).absolute().parent)
    settings = reader.settings()
    reader.check_whole(settings, environ)
    return settings, sorted(reader.problems, key=_line)


def _line(problem: Problem) -> float:
    """Problems of the file come first, from top to bottom."""
    found = re.fullmatch(r"line (\d+)", problem.where) if problem.where is not None else None
    return math.inf if found is None else int(found[1])


# ---------------------------------------------------------------- reading the tree


class _Reader:
    """Reads the tree against the types; what is wrong is noted, and its default taken so that reading goes on."""

    def __init__(self, tree: Tree, directory: Path) -> None:
        self.tree = tree
        self.directory = directory
        self.problems = tree.problems
        self.refused: set[Keys] = set()

    def refuse(self, keys: Keys, message: str) -> None:
        self.refused.add(keys)
        self.problems.append(Problem(written(keys), message, self.tree.where(keys)))

    def stands(self, keys: Keys) -> bool:
        """Whether the value was read as it was said: neither it nor what encloses it was refused."""
        return all(keys[:length] not in self.refused for length in range(len(keys) + 1))

    def settings(self) -> Settings:
        return msgspec.convert(self._read(SETTINGS, self.tree.values, ()), Settings)

    def _read(self, type_: inspect.Type, value: object, keys: Keys) -> object:
        """The value as the type wants it. ConfigError where it cannot be; problems inside of it are noted instead."""
        bare, unit, optional = bare_type(type_)
        if value is None and optional:
            return None
        match bare:
            case inspect.StructType():
                return self._struct(bare, {} if value is None else value, keys)
            case inspect.VarTupleType(item_type=item):
                return self._list(item, [] if value is None else value, keys)
            case inspect.DictType(value_type=item):
                return self._named(item, {} if value is None else value, keys)
            case _:
                pattern = pattern_of(keys)
                if CHECKS.get(pattern) is _check_address and isinstance(value, int):
                    value = str(value)  # a bare port, to which the check has the remedy
                read = _one_value(bare, unit, value)
                if isinstance(read, str) and pattern in FILES:
                    read = self._absolute(read, keys)
                if pattern in CHECKS:
                    read = CHECKS[pattern](read)
                return read

    def _absolute(self, path: str, keys: Keys) -> str:
        if not path or "\0" in path:
            raise ConfigError(f"expected the path of a file, got {shown(path)}")
        base = self.directory if isinstance(self.tree.origin(keys), int) else Path.cwd()
        return os.path.normpath(base / path)

    def _struct(self, type_: inspect.StructType, value: object, keys: Keys) -> dict[str, object]:
        if not isinstance(value, dict):
            raise ConfigError(f"expected keys and values, got {kind_of(value)}")
        fields = {field.encode_name: field for field in type_.fields}
        for key in value:
            if key not in fields:
                self.refuse((*keys, key), self._unknown(key, sorted(fields)))
        read: dict[str, object] = {}
        for name, field in fields.items():
            here = (*keys, name)
            if name not in value:
                if field.required:
                    self.refuse(here, f"missing; every {_singular(keys)} needs one")
                    read[name] = PLACEHOLDERS[pattern_of(here)]
                continue
            try:
                read[name] = self._read(field.type, value[name], here)
            except ConfigError as refused:
                for problem in refused.problems:
                    self.refuse(here, str(problem))
                if field.required:
                    read[name] = PLACEHOLDERS[pattern_of(here)]
        return read

    def _unknown(self, key: str, siblings: Sequence[str]) -> str:
        suggestion = suggest(key, siblings)
        if "." in key:
            return "unknown key; keys are nested in a file, `a: {b: …}` for a.b"
        if not suggestion:
            elsewhere = [pattern_of(path) for path, _ in keys_below(SETTINGS, ()) if path[-1] == key]
            suggestion = f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else ""
        return f"unknown key{suggestion}" if suggestion else f"unknown key; known here: {', '.join(siblings)}"

    def _list(self, item: inspect.Type, value: object, keys: Keys) -> list[object]:
        if not isinstance(value, list):
            raise ConfigError(f"expected a list, got {kind_of(value)}")
        read: list[object] = []
        for index, entry in enumerate(value):
            here = (*keys, index)
            try:
                read.append(self._read(item, entry, here))
            except ConfigError as refused:
                self.refuse(here, str(refused))
                if not isinstance(bare_type(item)[0], inspect.StructType):
                    continue
                inside = pattern_of(here) + "."
                read.append(
                    {
                        key.removeprefix(inside): value
                        for key, value in PLACEHOLDERS.items()
                        if key.startswith(inside) and "." not in key.removeprefix(inside)
                    }
                )
        return read

    def _named(self, item: inspect.Type, value: object, keys: Keys) -> dict[str, object]:
        if not isinstance(value, dict):
            raise ConfigError(f"expected names and values, got {kind_of(value)}")
        read: dict[str, object] = {}
        for name, entry in value.items():
            here = (*keys, name)
            try:
                if _LABEL_NAME.fullmatch(name) is None:
                    raise ConfigError("not a label name: letters, digits and _, not starting with a digit or __")
                if name in RESERVED_LABELS:
                    raise ConfigError("the metrics use this label name themselves; choose another")
                bare, unit, _ = bare_type(item)
                read[name] = NAMED_CHECKS[str(keys[-1])](str(_one_value(bare, unit, entry)))
            except ConfigError as refused:
                self.refuse(here, str(refused))
        return read

    # -------- what one key alone cannot tell

    def check_whole(self, settings: Settings, environ: Mapping[str, str] | None) -> None:
        """Note what is wrong between keys, between keys and files, and (given `environ`) with the environment."""
        self._check_routes(settings)
        self._check_rule_names(settings)
        self._check_ports(settings)
        self._check_tls(settings)
        self._check_admin_tls(settings)
        self._check_embedder(settings)
        if len(extra_labels(settings)) > MAX_LABELS:
            names = ", ".join(extra_labels(settings))
            self.refuse((), f"at most {MAX_LABELS} labels may be added by routes and headers, got {names}")
        otlp = settings.exporters.otlp
        bare = otlp.endpoint is not None and "://" not in otlp.endpoint
        if bare and otlp.protocol != "grpc" and self.stands(("exporters", "otlp", "protocol")):
            self.refuse(
                ("exporters", "otlp", "endpoint"),
                f"expected http(s)://host:port, got {shown(str(otlp.endpoint))}; "
                "host:port alone is for `protocol: grpc`",
            )
        if environ is not None:
            self._check_surroundings(settings, environ)

    def _check_surroundings(self, settings: Settings, environ: Mapping[str, str]) -> None:
        hmac = settings.privacy.text_hash == "hmac" and self.stands(("privacy", "hmac_key_env"))
        if hmac and not environ.get(settings.privacy.hmac_key_env):
            self.refuse(
                ("privacy", "text_hash"),
                "hmac needs a key, and the variable that privacy.hmac_key_env names "
                f"({KEY_VARIABLE} by default) is not set; set it to a secret",
            )
        key = settings.embedder.http.key_env
        if settings.embedder.kind == "http" and key is not None and not environ.get(key):
            self.refuse(("embedder", "http", "key_env"), f"the variable {key} is not set; set it to the server's key")
        token = environ.get(settings.admin_auth.token_env)
        if token and settings.admin_auth.token_file is None and self.stands(("admin_auth", "token_env")):
            try:
                parse_token(token)
            except ConfigError as refused:
                self.refuse(("admin_auth", "token_env"), f"its variable: {refused}")
        self._check_forward_proxies(settings, environ)
        self._check_signers(settings, environ)
        log = settings.exporters.exchange_log.path
        if log is not None and not Path(log).parent.is_dir():
            here = ("exporters", "exchange_log", "path")
            self.refuse(here, f"{Path(log).parent}: no such directory; make it, or name another file")
        elif log is not None and Path(log).is_dir():
            self.refuse(("exporters", "exchange_log", "path"), f"{log}: is a directory; name a file in it")

    def _check_forward_proxies(self, settings: Settings, environ: Mapping[str, str]) -> None:
        if not self.stands(("routes",)) or not self.stands(("upstream",)):
            return
        said = set()
        for route in routes_of(settings):
            try:
                if route.proxy is None:  # others were read with the file
                    forward_proxy_of(route, environ)
            except ConfigError as refused:
                said.add(str(refused))
        self.problems.extend(Problem("", message) for message in sorted(said))

    def _check_signers(self, settings: Settings, environ: Mapping[str, str]) -> None:
        for index, route in enumerate(settings.routes):
            if route.sigv4 is None or not self.stands(("routes", index, "sigv4")):
                continue
            try:
                signer_of(route.sigv4, environ)
            except ConfigError as refused:
                self.refuse(("routes", index, "sigv4"), str(refused))

    def _check_routes(self, settings: Settings) -> None:
        stand = self.stands(("upstream",)) and self.stands(("routes",))
        if settings.upstream is None and not settings.routes and stand:
            self.problems.append(
                Problem("upstream", "missing; set upstream (--upstream URL, SEMHEALTH_UPSTREAM) or list routes")
            )
        names: dict[str, int] = {}
        prefixes: dict[str, int] = {}
        for index, route in enumerate(settings.routes):
            for key, value, seen in (("name", route.name, names), ("prefix", route.prefix, prefixes)):
                here = ("routes", index, key)
                if not self.stands(here):
                    continue
                if value in seen:
                    self.refuse(here, f"{shown(value)} is also the {key} of routes[{seen[value]}]; no two may be alike")
                seen.setdefault(value, index)
            if route.sigv4 is not None and route.host == "preserve":
                self.refuse(
                    ("routes", index, "host"), "preserve goes without sigv4, which signs for the upstream's name"
                )
            self._check_objectives(index, route)
        if settings.upstream is not None:
            if "/" in prefixes:
                self.refuse(
                    ("upstream",),
                    f"stands for a route at /, and routes[{prefixes['/']}] is at / already; "
                    "leave upstream out, or give that route another prefix",
                )
            elif "default" in names:
                self.refuse(
                    ("upstream",),
                    f"stands for a route named default, and routes[{names['default']}] has that name; rename the route",
                )

    def _check_rule_names(self, settings: Settings) -> None:
        """Rule names are values of one label, over all routes."""
        names: set[str] = set()
        for index, route in enumerate(settings.routes):
            if route.contract is None or not self.stands(("routes", index, "contract")):
                continue
            with contextlib.suppress(ConfigError):  # it was read a moment ago, and has been said
                names.update(rule.name for rule in read_contract(Path(route.contract)).rules)
        if len(names) > MAX_RULES:
            self.refuse(("routes",), f"their contracts name {len(names)} rules; at most {MAX_RULES} can be told apart")

    def _check_objectives(self, index: int, route: Route) -> None:
        names: set[str] = set()
        for number, objective in enumerate(route.objectives):
            here: Keys = ("routes", index, "objectives", number)
            if objective.name in names:
                self.refuse((*here, "name"), f"{shown(objective.name)} is taken; no two of a route may be alike")
            names.add(objective.name)
            wanted = BOUND_OF_MEASURE.get(objective.measure)
            for bound in ("at_most", "at_least"):
                given = getattr(objective, bound) is not None
                if bound == wanted and not given:
                    self.refuse((*here, bound), f"missing; {objective.measure} is judged against it")
                elif bound != wanted and given:
                    self.refuse((*here, bound), f"{objective.measure} is not judged against it; leave it out")

    def _check_ports(self, settings: Settings) -> None:
        taken: list[tuple[str, str, int]] = []
        for key, text in (("listen", settings.listen), ("admin", settings.admin), ("health", settings.health)):
            if text is None or not self.stands((key,)):
                continue
            host, port = parse_address(text)
            for other, other_host, other_port in taken:
                if port != 0 and port == other_port and _overlap(host, other_host):
                    self.refuse((key,), f"{shown(text)} is the same port as {other}; give each its own")
                    break
            taken.append((key, host, port))
        if not taken or taken[0][0] != "listen":
            return
        _, host, port = taken[0]
        for index, route in enumerate(settings.routes):
            here = ("routes", index, "upstream")
            if self.stands(here):
                self._check_loop(here, route.upstream, host, port)
        if settings.upstream is not None and self.stands(("upstream",)):
            self._check_loop(("upstream",), settings.upstream, host, port)

    def _check_loop(self, keys: Keys, url: str, host: str, port: int) -> None:
        upstream = parse_upstream(url)
        if upstream.port == port and _is_loopback(upstream.host) and (_is_loopback(host) or host in _ANY):
            self.refuse(keys, f"{shown(url)} is where semhealth itself listens; name the LLM API's own address")

    def _check_embedder(self, settings: Settings) -> None:
        embedder = settings.embedder
        if not self.stands(("embedder",)):
            return
        missing = what_is_missing(embedder)
        if missing is not None:
            self.refuse(("embedder", *missing[0].split(".")), missing[1])
        if embedder.kind == "http":
            for key, needed in (("url", True), ("model", embedder.http.api == "openai"), ("calibrated_as", True)):
                if needed and getattr(embedder.http, key) is None and self.stands(("embedder", "http", key)):
                    self.refuse(("embedder", "http", key), "missing; the kind http needs it")

    def _check_tls(self, settings: Settings) -> None:
        tls = settings.proxy.tls
        if tls.client_key is not None and tls.client_cert is None and self.stands(("proxy", "tls", "client_cert")):
            self.refuse(("proxy", "tls", "client_key"), "needs client_cert beside it")

    def _check_admin_tls(self, settings: Settings) -> None:
        tls = settings.admin_tls
        stand = {key: self.stands(("admin_tls", key)) for key in ("cert_file", "key_file")}
        if tls.key_file is not None and tls.cert_file is None and stand["cert_file"]:
            self.refuse(("admin_tls", "key_file"), "needs cert_file beside it")
        elif tls.cert_file is not None and tls.key_file is None and stand["key_file"]:
            self.refuse(("admin_tls", "cert_file"), "needs key_file beside it")
        elif tls.cert_file is not None and all(stand.values()):
            from collector.admin.access import server_tls  # noqa: PLC0415 - only where the admin port has TLS

            try:
                server_tls(tls)
            except OSError as error:
                self.refuse(("admin_tls", "cert_file"), f"cannot be used with key_file: {error.strerror}")


_ANY = ("0.0.0.0", "::")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def _overlap(host: str, other: str) -> bool:
    named = "localhost" in (host, other) and _is_loopback(host) and _is_loopback(other)
    return named or host.lower() == other.lower() or host in _ANY or other in _ANY


def _singular(keys: Keys) -> str:
    if "objectives" in keys:
        return "objective"
    if "aliases" in keys:
        return "alias"
    return "route" if keys[:1] == ("routes",) else "section"


# ---------------------------------------------------------------- one value


def _one_value(type_: inspect.Type, unit: str | None, value: object) -> object:
    match type_:
        case inspect.FloatType() if unit == "seconds":
            return _number(
                type_, parse_duration(value) if isinstance(value, str) else value, "a duration", format_duration
            )
        case inspect.IntType() if unit == "bytes":
            return _number(
                type_,
                parse_size(value) if isinstance(value, str) else value,
                "a size",
                lambda size: format_size(int(size)),
            )
        case inspect.FloatType():
            return _number(type_, value, "a number", lambda number: f"{number:g}")
        case inspect.IntType():
            return _number(type_, value, "a whole number", str)
        case inspect.BoolType():
            if not isinstance(value, bool):
                raise ConfigError(f"expected true or false, got {said(value)}")
            return value
        case inspect.LiteralType(values=values):
            if not isinstance(value, str) or value not in values:
                words = [str(word) for word in values]
                suggestion = suggest(value, words) if isinstance(value, str) else ""
                raise ConfigError(f"expected {_either(words)}, got {said(value)}{suggestion}")
            return value
        case inspect.StrType(pattern=pattern):
            if not isinstance(value, str):
                remedy = "" if value is None or isinstance(value, dict | list) else "; put it in quotes"
                raise ConfigError(f"expected text, got {said(value)}{remedy}")
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise ConfigError(f"expected text, got half a character in {shown(value)}")
            if pattern is not None and re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value) is None:
                raise ConfigError(f"expected text that matches {pattern}, got {shown(value)}")
            return value
        case _:
            raise TypeError(f"settings of type {type_} cannot be read")


def _number(
    type_: inspect.FloatType | inspect.IntType, value: object, what: str, written: Callable[[float], str]
) -> float | int:
    whole = isinstance(type_, inspect.IntType)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise ConfigError(f"expected {what}, got {said(value)}")
    assert isinstance(value, int | float)  # noqa: S101 - said for the type checker
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"expected {what}, got {value}")
    broken = [
        f"{words} {written(bound)}"
        for words, bound, holds in (
            ("above", type_.gt, operator.gt),
            ("at least", type_.ge, operator.ge),
            ("below", type_.lt, operator.lt),
            ("at most", type_.le, operator.le),
        )
        if bound is not None and not holds(value, bound)
    ]
    if broken:
        raise ConfigError(f"expected {what} {' and '.join(broken)}, got {said(value)}")
    return value if whole else float(value)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


# ---------------------------------------------------------------- what single keys must be, beyond their type

PLACEHOLDERS: dict[str, object] = {
    "routes[].name": "refused",
    "routes[].upstream": "http://refused.invalid",
    "routes[].sigv4.region": "refused",
    "routes[].objectives[].name": "refused",
    "routes[].objectives[].measure": "errors",
    "routes[].objectives[].share": 0.5,
    "routes[].findings.aliases[].asked": "refused",
    "routes[].findings.aliases[].served": "refused",
    "findings.aliases[].asked": "refused",
    "findings.aliases[].served": "refused",
}  # so that reading goes on
FILES = {
    "admin_auth.token_file",
    "admin_tls.cert_file",
    "admin_tls.key_file",
    "routes[].contract",
    "embedder.sentence_transformers.folder",
    "proxy.tls.ca_file",
    "proxy.tls.client_cert",
    "proxy.tls.client_key",
    "exporters.exchange_log.path",
    "prices",
}
BOUND_OF_MEASURE = {
    **dict.fromkeys(("duration", "first_token", "jitter"), "at_most"),
    **dict.fromkeys(("context_relevance", "answer_relevance", "groundedness", "kv_cache_hit"), "at_least"),
}
LEAST_MEMORY = 64 * 1024 * 1024  # an interpreter with its validators does not fit in less
LEAST_HEAD = 1024

_LABEL_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_ID_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/+=-]{1,63}")
_PROVIDER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Names of the catalogue, of Prometheus (set on scraping and on export) and of histograms.
RESERVED_LABELS = {
    *LABELS,
    *(name for metric in METRICS for name in label_names(metric)),
    *("le", "quantile", "job", "instance"),
}
SECRET_HEADERS = {
    *("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-goog-api-key"),
    *("x-amz-security-token", "x-auth-token", "ocp-apim-subscription-key"),
}


def _check_address(value: object) -> object:
    if value is not None:
        parse_address(str(value))
    return value


def _check_upstream(value: object) -> object:
    return None if value is None else str(parse_upstream(str(value)))


def _check_prefix(value: object) -> object:
    prefix = parse_prefix(str(value))
    if prefix == "/-" or prefix.startswith("/-/"):
        raise ConfigError("/-/ is where semhealth answers /-/healthz and /-/readyz itself; choose another prefix")
    return prefix


def _check_forward_proxy(value: object) -> object:
    if value not in (None, NO_FORWARD_PROXY):
        parse_forward_proxy(str(value), "the route's proxy", may_have_user=False)
    return value


def _check_provider(value: object) -> object:
    if value is not None and _PROVIDER.fullmatch(str(value)) is None:
        raise ConfigError(f"expected a name such as openai or vllm, got {shown(str(value))}")
    return value


def _check_contract(value: object) -> object:
    if value is None:
        return None
    from collector.validation.contract import usable_contract  # noqa: PLC0415 - only where a route states one

    usable_contract(Path(str(value)))
    return value


def _check_readable(value: object) -> object:
    if value is not None:
        read_file(Path(str(value)), MAX_CERTIFICATE)
    return value


def _check_token_file(value: object) -> object:
    if value is None:
        return None
    if not Path(str(value)).is_file():
        # Never quoted: people put the token itself here.
        raise ConfigError("there is no such file; it holds the token, and the value here is its path")
    read_token(Path(str(value)))
    return value


def _check_endpoint(value: object) -> object:
    if value is None:
        return None
    text = str(value)
    if "://" in text:
        parse_upstream(text)
    else:
        parse_address(text)
    return value


def _check_variable(value: object) -> object:
    # Never quoted: people put the key itself here.
    if _VARIABLE.fullmatch(str(value)) is None:
        raise ConfigError(f"expected the name of an environment variable such as {KEY_VARIABLE}, not the key itself")
    return value


def _check_memory(value: object) -> object:
    if isinstance(value, int) and value < LEAST_MEMORY:
        raise ConfigError(f"expected a size at least {format_size(LEAST_MEMORY)}, got {format_size(value)}")
    return value


def _check_head(value: object) -> object:
    if isinstance(value, int) and value < LEAST_HEAD:
        raise ConfigError(f"expected a size at least {format_size(LEAST_HEAD)}, got {format_size(value)}")
    return value


def _check_label_value(value: str) -> str:
    if not value or len(value.encode("utf-8", "replace")) > MAX_LABEL_VALUE or not value.isprintable():
        raise ConfigError(f"expected printable text of 1 to {MAX_LABEL_VALUE} bytes, got {shown(value)}")
    return value


def _check_header(value: str) -> str:
    name = value.lower()
    if _HEADER_NAME.fullmatch(name) is None:
        raise ConfigError(f"expected the name of a request header such as x-team, got {shown(value)}")
    if name in SECRET_HEADERS:
        raise ConfigError(f"{name} holds a secret, which must not become a label; choose another header")
    return name


def _check_prices(value: object) -> object:
    if value is not None:
        read_table(Path(str(value)))
    return value


def _check_rule(value: object) -> object:
    rule = str(value)
    if rule not in FINDING_RULE:
        remedy = suggest(rule, sorted(FINDING_RULE)) or "; docs/findings/README.md lists them"
        raise ConfigError(f"no finding rule is called {shown(rule)}{remedy}")
    return value


def _check_request_header(value: object) -> object:
    name = str(value).lower()
    if _HEADER_NAME.fullmatch(name) is None:
        raise ConfigError(f"expected the name of a request header such as x-request-id, got {shown(str(value))}")
    return name


def _check_model(value: object) -> object:
    name = str(value)
    if not name.strip() or len(name) > 256 or not name.isprintable():
        raise ConfigError(f"expected the name of a model, 1 to 256 characters, got {shown(name)}")
    return value


def _check_model_or_none(value: object) -> object:
    return None if value is None else _check_model(value)


def _check_variable_or_none(value: object) -> object:
    return None if value is None else _check_variable(value)


def _check_language(value: object) -> object:
    if re.fullmatch(r"[a-z]{2}", str(value)) is None:
        raise ConfigError(f"expected a language of two letters such as en, got {shown(str(value))}")
    return value


def _check_id_prefix(value: object) -> object:
    if _ID_PREFIX.fullmatch(str(value)) is None:
        raise ConfigError(f"expected the beginning of a request id such as internal-, got {shown(str(value))}")
    return value


CHECKS: dict[str, Callable[[object], object]] = {
    "upstream": _check_upstream,
    "listen": _check_address,
    "admin": _check_address,
    "admin_auth.token_file": _check_token_file,
    "admin_auth.token_env": _check_variable,
    "admin_tls.cert_file": _check_readable,
    "admin_tls.key_file": _check_readable,
    "health": _check_address,
    "routes[].upstream": _check_upstream,
    "routes[].prefix": _check_prefix,
    "routes[].provider": _check_provider,
    "routes[].contract": _check_contract,
    "routes[].proxy": _check_forward_proxy,
    "proxy.max_head": _check_head,
    "validator.memory": _check_memory,
    "proxy.tls.ca_file": _check_readable,
    "proxy.tls.client_cert": _check_readable,
    "proxy.tls.client_key": _check_readable,
    "exporters.otlp.endpoint": _check_endpoint,
    "embedder.http.url": _check_upstream,
    "embedder.http.model": _check_model_or_none,
    "embedder.http.key_env": _check_variable_or_none,
    "embedder.http.languages[]": _check_language,
    "embedder.sentence_transformers.hub": _check_model_or_none,
    "privacy.hmac_key_env": _check_variable,
    "prices": _check_prices,
    **{
        f"{where}findings.{key}": check
        for where in ("", "routes[].")
        for key, check in (
            ("off[]", _check_rule),
            ("checked_headers[]", _check_request_header),
            ("aliases[].asked", _check_model),
            ("aliases[].served", _check_model),
            ("diagnostic_prefixes[]", _check_id_prefix),
        )
    },
}
NAMED_CHECKS: dict[str, Callable[[str], str]] = {"labels": _check_label_value, "label_headers": _check_header}
