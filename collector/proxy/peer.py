"""Does the other end of a TCP connection still belong to a process?

A client that closed and one that only finished sending look the same on the wire: both sent a FIN. But the service
beside a sidecar shares its network namespace, and there the kernel knows whether the other socket is still held.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG, see sock_diag(7)
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # NLM_F_REQUEST
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_INODE_OFFSET = 16 + 4 + 48 + 16  # header, states and timers, the socket's id, four numbers before the inode
_PATIENCE = 0.05

Address = tuple[str, int]


def is_held(peer: Address, own: Address) -> bool:
    """Whether a process of this network namespace holds the socket at `peer` that is connected to `own`.

    False too where that cannot be known: a peer on another machine, or a system without sock_diag.
    """
    try:
        return _inode(peer, own) != 0
    except (OSError, ValueError, struct.error):
        return False


def _inode(peer: Address, own: Address) -> int:
    """The inode of the peer's socket; 0 once nobody holds it, or where there is none."""
    theirs, ours = _plain(peer[0]), _plain(own[0])
    family = socket.AF_INET if theirs.version == 4 else socket.AF_INET6
    identity = struct.pack(
        "!HH16s16sIII",
        peer[1],
        own[1],
        theirs.packed.ljust(16, b"\0"),
        ours.packed.ljust(16, b"\0"),
        0,
        _NO_COOKIE,
        _NO_COOKIE,
    )
    question = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + identity
    header = struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_PATIENCE)
        kernel.send(header + question)
        answer = kernel.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return 0  # an error: no such socket here
    inode: int = struct.unpack_from("=I", answer, _INODE_OFFSET)[0]
    return inode


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address without a zone; IPv4 written as IPv6 becomes IPv4, since its own socket is one."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed
