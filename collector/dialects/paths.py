"""What a request's target names: the model, where the body does not."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

# Each pattern is matched against the path as sent, so that an encoded slash or colon stays inside the name.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"/model/([^/]+)/(?:converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$",  # Bedrock
        r"/(?:models|tunedModels)/([^/:%]+)(?::|%3[Aa])[A-Za-z]+$",  # Gemini, Vertex AI
        r"/(?:models|deployments)/([^/]+/[^/]+)/predictions$",  # Replicate
    )
)


def model_of(path: str) -> str | None:
    """The model that a path asks for, decoded; None where it names none."""
    plain = path.rstrip("/")
    for pattern in _PATTERNS:
        match = pattern.search(plain)
        if match is not None:
            return unquote(match[1]) or None
    return None


MAX_QUERY = 4096  # characters of a query that are looked through


def queried_model(target: str) -> str | None:
    """The model or deployment that the query of a realtime connection names: it has no body that could."""
    path, _, query = target.partition("?")
    if not query or len(query) > MAX_QUERY or not path.rstrip("/").endswith("/realtime"):
        return None
    asked = dict(reversed(parse_qsl(query)))
    return asked.get("model") or asked.get("deployment")


_RAW_PREDICT = re.compile(r"/publishers/([^/]+)/models/[^/]+(?::|%3[Aa])(?:rawPredict|streamRawPredict)$")


def raw_publisher(path: str) -> str | None:
    """Whose own wire a request to Vertex AI speaks (`rawPredict`, `streamRawPredict`); None for any other."""
    if "/publishers/" not in path:
        return None
    match = _RAW_PREDICT.search(path.rstrip("/"))
    return match[1] if match is not None else None
