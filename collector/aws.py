"""With whose credentials requests to AWS are signed, as the environment says."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from msgspec import Struct

from collector.config import ConfigError, Sigv4

ACCESS_KEY = "AWS_ACCESS_KEY_ID"  # the variables of all tools of AWS
SECRET_KEY = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a variable
SESSION_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105 - likewise


class Signer(Struct, frozen=True):
    """Whose signature, and for which region and service of AWS. `token` is a session's, None with lasting keys."""

    access_key: str
    secret_key: str
    token: str | None
    region: str
    service: str


def signer_of(sigv4: Sigv4, environ: Mapping[str, str]) -> Signer:
    """The signer of a route. ConfigError where the environment has no credentials, or botocore is not installed."""
    if importlib.util.find_spec("botocore") is None:
        raise ConfigError("signing needs botocore, which `pip install 'semhealth[aws]'` brings")
    access_key, secret_key = environ.get(ACCESS_KEY), environ.get(SECRET_KEY)
    if not access_key or not secret_key:
        raise ConfigError(f"signing needs {ACCESS_KEY} and {SECRET_KEY} in the environment; set both")
    return Signer(access_key, secret_key, environ.get(SESSION_TOKEN) or None, sigv4.region, sigv4.service)
