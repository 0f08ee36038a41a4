"""Which lines of a head belong to one hop: the only ones in which the two sides of a sidecar may differ."""

from __future__ import annotations

# RFC 9110, 7.6.1, and what `Connection` lists beside them. `Trailer` and `Transfer-Encoding` pass: the body, with its
# chunks and trailers, is relayed as it comes. `Proxy-*` are RFC 9110, 11.7, for a proxy that the client chose.
HOP_NAMES = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"upgrade",
        b"proxy-authorization",
        b"proxy-authenticate",
    }
)


def end_to_end(head: bytes) -> tuple[bytes, ...]:
    """The lines of a head, the first among them, without those of the hop; every other byte as it came."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    listed = {
        token.strip(b" \t").lower()
        for line in lines
        if _name(line) == b"connection"
        for token in line.partition(b":")[2].split(b",")
    }
    return (first, *(line for line in lines if _name(line) not in HOP_NAMES | listed))


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()
