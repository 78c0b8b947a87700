"""Check the addresses that brokers advertise before a client connects to them.

    bootstrap, of the operator ──► metadata: the address that each broker advertises
                                        │ resolved
                                        ▼
                       allowed, or AddressRefused: no client connects

The operator names the bootstrap addresses. The brokers there name all further addresses, and
clients trust them. So a malicious broker could make us connect to services that only this machine
can reach. Private addresses stay allowed, because brokers inside a company have them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from schemas.failures.catalogue import CodedError

Address = tuple[str, int]  # host and port
Resolve = Callable[[str, int], Sequence[str]]


class AddressRefused(CodedError, code="address-refused"):
    """A broker advertises an address to which no client may connect."""


def refusal(address: str, *, loopback: bool) -> str | None:
    """Return why an IP address is refused, or None if it is allowed.

    `loopback`: the bootstrap is this machine, so loopback addresses are allowed."""
    ip = _parse_ip(address)
    if ip.is_link_local:
        return "a link-local address, where clouds serve credentials"
    if ip.is_unspecified:
        return "an unspecified address, which means this machine"
    if ip.is_multicast:
        return "a multicast address"
    if ip.is_loopback and not loopback:
        return "a loopback address, although the bootstrap is another machine"
    return None


def require_allowed(
    bootstrap: Sequence[Address], advertised: Iterable[Address], resolve: Resolve | None = None
) -> None:
    """Raise AddressRefused unless clients may connect to every advertised address.

    A name that does not resolve here is not refused: the client reports it itself."""
    resolve = resolve or _resolve
    loopback = any(_parse_ip(ip).is_loopback for address in bootstrap for ip in resolve(*address))
    for host, port in advertised:
        for ip in resolve(host, port):
            reason = refusal(ip, loopback=loopback)
            if reason is not None:
                servers = ",".join(f"{host}:{port}" for host, port in bootstrap)
                shown = f"{host}:{port}" if ip == host else f"{host}:{port} ({ip})"
                raise AddressRefused(
                    f"the brokers at {servers} advertise {shown}, which is {reason}; "
                    "correct advertised.listeners of that broker, or the connection's bootstrap"
                )


def require_allowed_brokers(cluster: Any) -> None:
    """Check the cluster metadata of a kafka-python client before it connects any further."""
    bootstrap, advertised = (
        [(broker.host, broker.port) for broker in brokers]
        for brokers in (cluster.bootstrap_brokers(), cluster.brokers())
    )
    require_allowed(bootstrap, advertised)


def _parse_ip(address: str) -> IPv4Address | IPv6Address:
    """Return the IP address; an IPv4 address mapped into IPv6 as IPv4."""
    ip = ip_address(address)
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _resolve(host: str, port: int) -> list[str]:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the codec of host names fails on an invalid name
        return []
    return [str(address[0]) for *_, address in entries]
