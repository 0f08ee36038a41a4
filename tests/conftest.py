"""What every test may ask for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

DEBIAN_PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "docker-compose": "docker-compose",
}


@pytest.fixture(scope="session")
def needs_binary() -> Callable[[str], str]:
    """The path of a program. Without it the test fails under CI, and is skipped with the reason elsewhere."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            package = DEBIAN_PACKAGES.get(name, name)
            reason = f"{name} is not installed: apt-get install --no-install-recommends {package}"
            if os.environ.get("CI"):
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)  # a user's machine need not have it; CI has to, see above
        return path

    return find
