"""The command line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from collector.config import ConfigError, Settings, parse_address

OK, FAILED, USAGE = 0, 1, 2
LOG_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"
HEALTH_TIMEOUT = 2.0

EXAMPLES = """examples:
  semhealth run --upstream https://api.openai.com
  semhealth run --upstream https://api.anthropic.com --set stall_threshold=2s --exchange-log exchanges.jsonl
  semhealth run --config semhealth.yaml
  semhealth demo --duration 20
  semhealth check semhealth.yaml
  semhealth objectives suggest --url http://127.0.0.1:9464
  semhealth grafana push --url https://grafana.example --dry-run
  semhealth inspect --json recorded.jsonl capture.har
  semhealth inspect --contract contract.yaml recorded.jsonl
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="semhealth",
        description="Semantic health of services that call LLM APIs: a transparent sidecar that measures "
        "validity, relevance and stream continuity.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    run = commands.add_parser("run", help="run the sidecar", epilog=EXAMPLES, formatter_class=_RAW)
    run.add_argument("--upstream", metavar="URL", help="the LLM API, such as https://api.openai.com")
    _add_settings(run)

    demo = commands.add_parser("demo", help="run the sidecar between simulated traffic and a simulated API")
    demo.add_argument("--duration", type=float, metavar="S", help="seconds of traffic (default: until Ctrl-C)")
    demo.add_argument("--rate", type=float, default=6.0, metavar="R", help="requests a second (default %(default)g)")
    demo.add_argument("--simulator", metavar="ADDR", help="where the simulated API listens (default: a free port)")
    _add_settings(demo)

    check = commands.add_parser("check", help="print every problem of a configuration")
    check.add_argument("file", type=Path, metavar="FILE")

    inspect = commands.add_parser("inspect", help="read recorded exchanges and print their records")
    inspect.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON, JSON Lines or HAR")
    inspect.add_argument("--json", action="store_true", help="one JSON record a line")
    inspect.add_argument("--contract", type=Path, metavar="FILE", help="try a contract; says what each rule found")
    inspect.add_argument("--config", type=Path, metavar="FILE")
    inspect.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")

    objectives = commands.add_parser("objectives", help="what a route can promise")
    of_objectives = objectives.add_subparsers(dest="of_objectives", metavar="COMMAND", required=True)
    suggest = of_objectives.add_parser("suggest", help="propose objectives from the records of a running sidecar")
    suggest.add_argument("--url", metavar="URL", default=None, help="its admin port (default http://127.0.0.1:9464)")
    suggest.add_argument("--token-file", metavar="FILE", help="its bearer token (else SEMHEALTH_ADMIN_TOKEN holds it)")
    suggest.add_argument("--ca-file", metavar="FILE", help="certificates that it is verified by, with https")
    suggest.add_argument(
        "--long-context-tokens", type=int, metavar="N", default=None, help="boundary of prompt classes (default 4000)"
    )

    grafana = commands.add_parser("grafana", help="the shipped dashboards in a Grafana")
    of_grafana = grafana.add_subparsers(dest="of_grafana", metavar="COMMAND", required=True)
    push = of_grafana.add_parser("push", help="put the dashboards there; a second time changes nothing")
    push.add_argument("--url", required=True, metavar="URL", help="Grafana, such as https://grafana.example")
    token = push.add_mutually_exclusive_group()
    token.add_argument("--token-env", default="GRAFANA_TOKEN", metavar="NAME", help="variable with the token of a "
                       "service account (default %(default)s)")  # fmt: skip
    token.add_argument("--token", metavar="TOKEN", help="the token itself; other users see it in the process list")
    push.add_argument("--folder", default="semhealth", metavar="TITLE", help="made where missing (default %(default)s)")
    push.add_argument("--prometheus", metavar="URL", help="also a data source for it, as Grafana reaches it")
    push.add_argument("--dry-run", action="store_true", help="change nothing; print what would")

    drill = commands.add_parser("drill", help="try alerts with real faults, a real Prometheus and a real Alertmanager")
    drill.add_argument("alerts", nargs="*", metavar="ALERT", help="alerts to try (default: all)")
    drill.add_argument("--json", action="store_true", help="print the result as JSON")
    drill.add_argument(
        "--quiet", type=float, metavar="S", default=None,
        help="seconds without a fault first (default: until every window is filled twice; 0 where alerts are named)",
    )  # fmt: skip

    drill.add_argument(
        "--alertmanager", metavar="URL", default=None,
        help="send the alerts to an Alertmanager of yours too, labelled drill='true', and see whom it tells; "
        "http(s)://[user:password@]host[:port][/prefix]",
    )  # fmt: skip

    commands.add_parser("metrics", help="print the metric catalogue as Markdown")

    health = commands.add_parser("health", help="ask a running sidecar; exit 0 when it is ready, else 1")
    health.add_argument(
        "--admin", default=None, metavar="ADDR", help="its admin address, https:// before it if it has TLS "
        "(default 127.0.0.1:9464)",
    )  # fmt: skip
    health.add_argument("--ca-file", metavar="FILE", help="certificates that it is verified by, with https")
    health.add_argument("--health", default=None, metavar="ADDR", help="its health address, asked instead")
    return parser


_RAW = argparse.RawDescriptionHelpFormatter


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="ADDR", help="for the service beside it (default 127.0.0.1:8080)")
    parser.add_argument("--admin", metavar="ADDR", help="metrics, records and health (default 127.0.0.1:9464)")
    parser.add_argument("--health", metavar="ADDR", help="health only, answered by the proxy (default: none)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML; see docs/configuration.md")
    parser.add_argument("--exchange-log", metavar="FILE", help="append one JSON record per exchange")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="any configuration key, such as stall_threshold=300ms; may be repeated",
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.version:
            return _version()
        match given.command:
            case "run":
                return _run(given)
            case "demo":
                return _demo(given)
            case "check":
                return _check(given.file)
            case "inspect":
                return _inspect(given)
            case "objectives":
                return _suggest(given)
            case "grafana":
                return _push(given)
            case "drill":
                return _drill(given)
            case "metrics":
                return _metrics()
            case "health":
                return _health(given.admin, given.health, given.ca_file)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    parser.print_help(sys.stderr)
    return USAGE


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _load(given: argparse.Namespace, **flags: str | None) -> Settings:
    from collector.config_file import load, variable_warnings

    settings = load(given.config, os.environ, given.overrides, **flags)
    for warning in variable_warnings(os.environ, settings):
        _say(f"semhealth: {warning}")
    return settings


def _settings_flags(given: argparse.Namespace) -> dict[str, str | None]:
    return {
        "listen": given.listen,
        "admin": given.admin,
        "health": given.health,
        "exchange_log": given.exchange_log,
    }


def _run(given: argparse.Namespace) -> int:
    from collector.handover import REHEARSAL, own_command, take_inherited
    from collector.supervisor import StartError, Supervisor, settings_in

    def read() -> Settings:
        settings = _load(given, upstream=given.upstream, **_settings_flags(given))
        _check_log_file(settings)
        return settings

    inherited = take_inherited(os.environ)
    try:
        if os.environ.pop(REHEARSAL, None) is not None:
            return _rehearse(read())
        settings = None if inherited is None else settings_in(inherited)
        settings = read() if settings is None else settings
        logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT)
        log = logging.getLogger("semhealth")

        async def supervise() -> int:
            supervisor = Supervisor(settings, read, own_command(), inherited)
            return await supervisor.run(lambda: log.info(_greeting(settings, supervisor.addresses)))

        return asyncio.run(supervise())
    except ConfigError as error:
        return _complain(error)
    except StartError as error:
        _say(f"semhealth: {error}")
        return FAILED


def _rehearse(settings: Settings) -> int:
    """Whether a start would succeed, as far as can be told without one: the settings were read, the code is here."""
    import importlib
    import tempfile

    from collector.changes import keep_files

    for module in ("proxy.worker", "app", "validation.process", "embedding.process"):
        importlib.import_module(f"collector.{module}")
    with tempfile.TemporaryDirectory(prefix="semhealth-") as runtime:
        keep_files(settings, Path(runtime), 0)
    return OK


def _greeting(settings: Settings, addresses: Mapping[str, str]) -> str:
    from collector.config import routes_of

    routes = ", ".join(f"{route.prefix} → {route.upstream}" for route in routes_of(settings))
    others = "".join(f"; {name} on http://{addresses[name]}" for name in ("admin", "health") if name in addresses)
    return f"listening on http://{addresses['listen']} ({routes}){others}"


def _check_log_file(settings: Settings) -> None:
    """Whether the exchange log can be written, before anything is started."""
    from collector.supervisor import StartError
    from exporters.exchange_log import check_path

    path = settings.exporters.exchange_log.path
    if path is None:
        return
    try:
        check_path(path)
    except OSError as error:
        raise StartError(
            f"exchange log: cannot write {path}: {error.strerror}; choose another file with --exchange-log"
        ) from error


def _demo(given: argparse.Namespace) -> int:
    from collector import demo
    from collector.supervisor import StartError

    try:
        settings = _load(given, upstream="http://127.0.0.1:1", **_settings_flags(given))
        logging.basicConfig(level="WARNING", format=LOG_FORMAT)
        _check_log_file(settings)
        return asyncio.run(demo.run(settings, given.simulator, given.rate, given.duration))
    except ConfigError as error:
        return _complain(error)
    except StartError as error:
        _say(f"semhealth: {error}")
        return FAILED


def _check(path: Path) -> int:
    from collector.config import routes_of
    from collector.config_file import checked
    from collector.objectives import described

    settings, problems = checked(path)
    for problem in problems:
        print(problem)
    if problems:
        _say(f"semhealth: {path}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        return USAGE
    print(f"{path}: no problems")
    print(described(settings, routes_of(settings)))
    return OK


def _inspect(given: argparse.Namespace) -> int:
    from collector.inspection import Inspector
    from collector.recorded import Recording, RecordingError, read_file
    from collector.supervisor import StartError
    from exporters.exchange_log import record_json

    failed = False

    def recordings() -> Iterator[Recording]:
        nonlocal failed
        for path in given.files:
            try:
                yield from read_file(path)
            except RecordingError as error:
                _say(f"semhealth: {error}")
                failed = True

    async def work(settings: Settings) -> None:
        from collector.contracts.reading import Contract
        from collector.inspection_view import RuleTally, described
        from collector.validation.contract import usable_contract

        contract = Contract() if given.contract is None else usable_contract(given.contract)
        tally = RuleTally([rule.name for rule in contract.rules])
        async with Inspector(settings, contract.schema, contract.rule_set()) as inspector:
            async for record in inspector.records(recordings()):
                tally.add(record)
                print(record_json(record).decode() if given.json else described(record), flush=True)
        if contract.rules:
            print(tally.described(), file=sys.stderr if given.json else sys.stdout)

    try:
        asyncio.run(work(_load(given, upstream="http://127.0.0.1:1")))
    except ConfigError as error:
        return _complain(error)
    except StartError as error:
        _say(f"semhealth: {error}")
        return FAILED
    return FAILED if failed else OK


def _suggest(given: argparse.Namespace) -> int:
    from collector.admin_token import token_of
    from collector.config import AdminAuth
    from collector.suggestion import SuggestionError, described, fetch

    file = given.token_file or os.environ.get("SEMHEALTH_ADMIN_TOKEN_FILE") or None
    try:
        token = token_of(AdminAuth(token_file=file), os.environ)
        records = fetch(f"http://{_admin_default()}" if given.url is None else given.url, token, given.ca_file)
    except ConfigError as error:
        return _complain(error)
    except SuggestionError as error:
        _say(f"semhealth: {error}")
        return FAILED
    if not records:
        _say("semhealth: the sidecar has no records yet; let traffic pass first")
        return FAILED
    long_context = given.long_context_tokens
    sys.stdout.write(
        described(records, Settings().analysis.long_context_tokens if long_context is None else long_context)
    )
    return OK


def _push(given: argparse.Namespace) -> int:
    from collector.grafana import GrafanaPushError, push

    token = given.token if given.token is not None else os.environ.get(given.token_env, "")
    if not token:
        _say(f"semhealth: no token; set {given.token_env} to one of a Grafana service account")
        return USAGE
    try:
        changes = push(given.url, token, given.folder, given.prometheus, dry_run=given.dry_run)
    except GrafanaPushError as error:
        _say(f"semhealth: {error}")
        return FAILED
    for change in changes:
        print(change)
    if given.dry_run:
        print("dry run: nothing was changed")
    return OK


def _drill(given: argparse.Namespace) -> int:
    import msgspec

    from collector.drill.alertmanager import address_of
    from collector.drill.drill import chosen, drill, table
    from collector.drill.stage import SHORTENED, DrillError

    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # simulated APIs hang up on purpose
    quiet = 0.0 if given.quiet is None and given.alerts else given.quiet
    try:
        address = None if given.alertmanager is None else address_of(given.alertmanager)
        report = asyncio.run(drill(chosen(given.alerts), quiet, _say, SHORTENED, address))
    except DrillError as error:
        _say(f"semhealth: {error}")
        return FAILED
    sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n" if given.json else table(report))
    return OK if report.is_good else FAILED


def _metrics() -> int:
    from collector.metric_page import metrics_markdown

    sys.stdout.write(metrics_markdown())
    return OK


def _version() -> int:
    from collector.app import installed_version

    print(f"semhealth {installed_version()}")
    return OK


def _health(admin: str | None, health: str | None, ca_file: str | None) -> int:
    """The health address where one is given, else the admin address, which may have https:// before it."""
    from collector.admin_token import connection_to

    try:
        address, path = (health, "/-/readyz") if health is not None else (admin or _admin_default(), "/readyz")
        scheme = "https" if address.startswith("https://") else "http"
        host, port = parse_address(address.removeprefix(f"{scheme}://"))
    except ConfigError as error:
        return _complain(error)
    try:
        connection = connection_to(scheme, host, port, HEALTH_TIMEOUT, ca_file)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            said = response.read(200).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        _say(f"semhealth: no answer from {address}: {error}")
        return FAILED
    print(said)
    return OK if response.status == 200 else FAILED


def _admin_default() -> str:
    return os.environ.get("SEMHEALTH_ADMIN") or Settings().admin


def _complain(error: ConfigError) -> int:
    for line in str(error).splitlines():
        _say(f"semhealth: {line}")
    return USAGE


if __name__ == "__main__":
    sys.exit(main())
