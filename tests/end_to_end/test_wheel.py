"""The wheel, installed into an environment of its own, is all that a user needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.catalogue import METRICS

from .conftest import ROOT

MOST_DISTRIBUTIONS = 40
MOST_BYTES = 150_000_000
NO_PART = ("torch", "transformers", "sentence-transformers", "openai", "anthropic", "pytest", "grpcio")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _run(*command: str | Path, cwd: Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """What is installed must not find the checkout, so neither its path nor ours is passed on."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "SEMHEALTH_", "OTEL_"))}
    return subprocess.run(
        list(map(str, command)), check=False, capture_output=True, text=True, timeout=seconds, cwd=cwd, env=kept
    )


@pytest.fixture(scope="module")
def wheel(new_directory: Callable[[], Path]) -> Path:
    directory = new_directory()
    built = _run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT, cwd=directory
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = directory.glob("semhealth-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, new_directory: Callable[[], Path]) -> Path:
    """The environment into which the wheel was installed, with nothing of the development tools."""
    directory = new_directory()
    environment = directory / "environment"
    assert _run(sys.executable, "-m", "venv", environment, cwd=directory).returncode == 0
    done = _run(
        environment / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--quiet",
        "--no-compile", "--constraint", ROOT / "constraints.txt", wheel,
        cwd=directory,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


def distributions(environment: Path) -> dict[str, int]:
    """Bytes by distribution, bytecode left out."""
    code = """
import importlib.metadata, json, os
sizes = {}
for found in importlib.metadata.distributions():
    files = [os.path.realpath(file.locate()) for file in found.files or () if file.suffix != ".pyc"]
    sizes[found.metadata["Name"].lower()] = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
print(json.dumps(sizes))
"""
    told = _run(environment / "bin" / "python", "-c", code, cwd=environment)
    sizes: dict[str, int] = json.loads(told.stdout)
    return {name: size for name, size in sizes.items() if name not in ("pip", "setuptools")}


def test_the_wheel_holds_the_code_the_dashboards_and_the_alerts_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind, suffix in (("dashboards", ".json"), ("alerts", ".yml")):
        shipped = {name for name in names if name.startswith(f"collector/shipped/{kind}/")}
        ours = {
            f"collector/shipped/{kind}/{path.relative_to(ROOT / kind)}"
            for path in (ROOT / kind).rglob("*")
            if path.is_file()
        }
        assert shipped == ours
        assert any(name.endswith(suffix) for name in shipped)
    assert "collector/prices.yaml" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"collector", "exporters"}
    modules = {str(path.relative_to(ROOT)) for top in ("collector", "exporters") for path in (ROOT / top).rglob("*.py")}
    assert modules <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_what_is_installed_is_small(installed: Path) -> None:
    sizes = distributions(installed)
    assert [name for name in NO_PART if name in sizes] == []
    assert "semhealth" in sizes
    assert len(sizes) <= MOST_DISTRIBUTIONS, sorted(sizes)
    assert sum(sizes.values()) <= MOST_BYTES, sorted(sizes.items(), key=lambda each: -each[1])


def test_the_installed_command_says_its_version_and_metrics(installed: Path, wheel: Path) -> None:
    command = installed / "bin" / "semhealth"
    told = _run(command, "--version", cwd=installed)
    assert (told.returncode, told.stdout) == (0, f"semhealth {wheel.name.split('-')[1]}\n")
    told = _run(command, "metrics", cwd=installed)
    assert told.returncode == 0
    assert all(f"`{metric.name}`" in told.stdout for metric in METRICS)


def test_the_installed_demonstration_runs(installed: Path) -> None:
    done = _run(
        installed / "bin" / "semhealth", "demo", "--duration", "4", "--rate", "15",
        "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        cwd=installed, seconds=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "semhealth ran for " in done.stdout
    assert " 0 recorded" not in done.stdout
    assert "Traceback" not in done.stderr


def test_the_shipped_files_are_found_by_the_installed_code(installed: Path) -> None:
    code = (
        "import importlib.resources as r; print(sorted(p.name for p in (r.files('collector') / 'shipped').iterdir()))"
    )
    told = _run(installed / "bin" / "python", "-c", code, cwd=installed)
    assert told.stdout == "['alerts', 'dashboards']\n"
