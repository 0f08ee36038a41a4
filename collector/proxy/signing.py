"""Signs a request anew for AWS (Signature Version 4), by botocore, which the extra `aws` brings."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from collector.aws import Signer
from collector.proxy.heads import END

# What a signature of the client's own stands in. Its hash of the body goes too, since the body is hashed here.
_STALE = re.compile(
    rb"\r\n(?:authorization|date|x-amz-date|x-amz-security-token|x-amz-content-sha256):[^\r]*", re.IGNORECASE
)
_LINE = re.compile(rb"\r\n([^:\r\n]+):[ \t]*([^\r]*)")
_SIGNED = frozenset({"host", "content-type"})  # and all that begin with x-amz-


def signed_request(head: bytes, body: bytes, signer: Signer, now: float) -> bytes:
    """The head signed anew: Host, Content-Type and all of `x-amz-`, with the hash of the body. `now` is Unix seconds.

    `head` is a request as it is forwarded, with its Host and the empty line at its end. Lines of an earlier signature
    are left out; all others stay byte for byte.
    """
    kept = _STALE.sub(b"", head[: -len(END)])
    method, target, _ = kept.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    named = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in _LINE.findall(kept)]
    host = next(value for name, value in named if name == "host")
    # A forward proxy is asked by the whole URL.
    request = AWSRequest(method, f"https://{host}{target}" if target[0] == "/" else target, None, body)
    stamp = datetime.fromtimestamp(now, UTC).strftime(SIGV4_TIMESTAMP)
    request.context["timestamp"] = stamp
    for name, value in named:
        if name in _SIGNED or name.startswith("x-amz-"):
            request.headers[name] = value
    added = {"X-Amz-Date": stamp} | ({} if signer.token is None else {"X-Amz-Security-Token": signer.token})
    for name, value in added.items():
        request.headers[name] = value
    auth = SigV4Auth(Credentials(signer.access_key, signer.secret_key, signer.token), signer.service, signer.region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    added["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, "
        f"SignedHeaders={auth.signed_headers(auth.headers_to_sign(request))}, Signature={signature}"
    )
    lines = "".join(f"\r\n{name}: {value}" for name, value in added.items())
    return kept + lines.encode("latin-1") + END
