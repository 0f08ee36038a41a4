"""Signed requests to Bedrock through the sidecar, as in docs/bedrock.md; the simulated Bedrock checks signatures."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("boto3", reason="the dependency group `clients` brings boto3")

from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, InvalidEndpointConfigurationError

from . import clients
from .conftest import Sidecar, Simulator

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIASIMULATED",
    "AWS_SECRET_ACCESS_KEY": "simulated-secret-key",
}  # as clients.bedrock has them
BEARER = "bedrock-api-key-simulated"
UNSIGNED_CONFIG = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})


@pytest.fixture(scope="module")
def bedrock(new_directory: Callable[[], Path]) -> Iterator[Simulator]:
    simulator = Simulator(
        new_directory(), "--fast", "--sigv4", env={**KEYS, "AWS_BEARER_TOKEN_BEDROCK": BEARER, "AWS_SESSION_TOKEN": ""}
    )
    yield simulator
    assert simulator.end() == 0


def routed(start: Callable[..., Sidecar], directory: Path, upstream: str, env: dict[str, str], **route: Any) -> Sidecar:
    """A sidecar with one route; JSON is YAML."""
    file = directory / "semhealth.yaml"
    file.write_text(json.dumps({"routes": [{"name": "bedrock", "upstream": upstream, **route}]}))
    return start("--config", str(file), env=env)


def new_id() -> str:
    return f"test-{uuid.uuid4().hex}"


def sign_for(client: Any, host: str) -> None:
    """The recipe of docs/bedrock.md: the signature is for the host that the sidecar forwards to."""

    def name_the_host(request: Any, **_: Any) -> None:
        request.headers["Host"] = host

    client.meta.events.register("before-sign.bedrock-runtime", name_the_host)


def bearing(client: Any, key: str = BEARER) -> Any:
    """The recipe of docs/bedrock.md for a bearer key, on a client that does not sign."""
    client.meta.events.register(
        "before-call", lambda params, **_: params["headers"].update({"Authorization": f"Bearer {key}"})
    )
    return client


def refusal(client: Any) -> str:
    with pytest.raises(ClientError) as caught:
        clients.converse(client, False)
    return str(caught.value.response["Error"]["Code"])


def agrees(sidecar: Sidecar, request_id: str, said: clients.Said, *, is_stream: bool) -> None:
    record = sidecar.record_of(request_id)
    assert (record["dialect"], record["outcome"], record["stream"]) == ("bedrock.converse", "completed", is_stream)
    assert record["request_model"] == "anthropic.sim-opus-v1:0"
    assert record["text"]["chars"] == len(said.text)


def test_a_signature_for_the_sidecar_itself_is_refused_by_the_upstream(
    bedrock: Simulator, start: Callable[..., Sidecar]
) -> None:
    sidecar, request_id = start("--upstream", bedrock.base), new_id()
    assert refusal(clients.bedrock(sidecar.base, request_id)) == "InvalidSignatureException"
    record = sidecar.record_of(request_id)
    assert (record["status"], record["error"]["type"]) == (403, "InvalidSignatureException")
    assert (record["error"]["kind"], record["error"]["source"]) == ("auth", "upstream")


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("host", ["upstream", "preserve"])
def test_the_recipe_signs_for_the_upstream_and_sends_to_the_sidecar(
    host: str,
    is_stream: bool,
    bedrock: Simulator,
    start: Callable[..., Sidecar],
    new_directory: Callable[[], Path],
) -> None:
    sidecar = routed(start, new_directory(), bedrock.base, {}, host=host)
    request_id = new_id()
    client = clients.bedrock(sidecar.base, request_id)
    sign_for(client, urlsplit(bedrock.base).netloc)
    said = clients.converse(client, is_stream)
    assert said == clients.converse(clients.bedrock(bedrock.base, request_id), is_stream)
    agrees(sidecar, request_id, said, is_stream=is_stream)


def test_a_preserved_host_may_be_another_than_the_address(
    bedrock: Simulator, start: Callable[..., Sidecar], new_directory: Callable[[], Path]
) -> None:
    """As with a VPC endpoint: it is reached by a name of its own, and signatures are for the public one."""
    public = "bedrock-runtime.us-east-1.amazonaws.com"
    said = []
    for host in ("preserve", "upstream"):
        sidecar = routed(start, new_directory(), bedrock.base, {}, host=host)
        client = clients.bedrock(sidecar.base, new_id())
        sign_for(client, public)
        said.append(clients.converse(client, False).text if host == "preserve" else refusal(client))
    assert len(said[0]) > 40
    assert said[1] == "InvalidSignatureException"


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_a_route_that_resigns_needs_no_keys_in_the_service(
    is_stream: bool, bedrock: Simulator, start: Callable[..., Sidecar], new_directory: Callable[[], Path]
) -> None:
    sidecar = routed(start, new_directory(), bedrock.base, KEYS, sigv4={"mode": "resign", "region": "us-east-1"})
    request_id = new_id()
    client = clients.bedrock(sidecar.base, request_id, aws_access_key_id="none", aws_secret_access_key="none")
    said = clients.converse(client, is_stream)
    assert said == clients.converse(clients.bedrock(bedrock.base, request_id), is_stream)
    agrees(sidecar, request_id, said, is_stream=is_stream)
    told = [sidecar.log_path.read_text(), sidecar.stdout, sidecar.stderr, sidecar.metrics().text]
    assert not any(key in each for key in KEYS.values() for each in told)


def test_a_session_is_signed_with_its_token(new_directory: Callable[[], Path], start: Callable[..., Sidecar]) -> None:
    session = {**KEYS, "AWS_SESSION_TOKEN": "session-token"}
    upstream = Simulator(new_directory(), "--fast", "--sigv4", env=session)
    try:
        sidecar = routed(start, new_directory(), upstream.base, session, sigv4={"region": "us-east-1"})
        said = clients.converse(clients.bedrock(sidecar.base, new_id(), aws_secret_access_key="none"), False)
        assert len(said.text) > 40
        assert refusal(clients.bedrock(upstream.base, new_id())) == "UnrecognizedClientException"
    finally:
        assert upstream.end() == 0


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_a_bearer_key_works_as_it_is(is_stream: bool, bedrock: Simulator, start: Callable[..., Sidecar]) -> None:
    sidecar, request_id = start("--upstream", bedrock.base), new_id()
    said = clients.converse(bearing(clients.bedrock(sidecar.base, request_id, config=UNSIGNED_CONFIG)), is_stream)
    assert said == clients.converse(clients.bedrock(bedrock.base, request_id), is_stream)
    agrees(sidecar, request_id, said, is_stream=is_stream)
    wrong = clients.bedrock(sidecar.base, new_id(), config=UNSIGNED_CONFIG)
    assert refusal(wrong) == "MissingAuthenticationTokenException"
    assert refusal(bearing(wrong, "another")) == "AccessDeniedException"


def test_boto3_itself_sends_no_bearer_key_without_tls(
    bedrock: Simulator, start: Callable[..., Sidecar], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why docs/bedrock.md has a recipe for it; when this fails, the recipe is no longer needed."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    client = clients.bedrock(bedrock.base, new_id(), aws_access_key_id=None, aws_secret_access_key=None)
    with pytest.raises(InvalidEndpointConfigurationError):
        clients.converse(client, False)


def test_without_credentials_the_sidecar_says_so_and_does_not_start(new_directory: Callable[[], Path]) -> None:
    directory = new_directory()
    empty = dict.fromkeys(KEYS, "")
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"routes\[0\]\.sigv4: signing needs AWS_ACCESS_KEY_ID"):
        routed(
            lambda *arguments, env: Sidecar(directory, *arguments, env=env),
            directory,
            "http://127.0.0.1:9",
            empty,
            sigv4={"region": "us-east-1"},
        )
    assert time.monotonic() - began < 20
