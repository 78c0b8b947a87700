"""Broker addresses: where the clients of a connection may be sent on to.

    bootstrap, of the operator ──► metadata: the address that each broker advertises
                                        │ resolved
                                        ▼
                       allowed, or AddressRefused: no client goes there

An operator names where to begin; where to go on, the brokers say, and clients believe them. So a
broker that lies could have us knock at doors that only this machine can reach. Addresses inside of
a company are where its brokers are: those are allowed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

Address = tuple[str, int]  # host and port
Resolve = Callable[[str, int], Sequence[str]]


class AddressRefused(Exception):
    """A broker advertises an address that no client is let go to; the message says what to do."""


def refusal(address: str, *, loopback: bool) -> str | None:
    """What is wrong with an address; None where it is allowed. `loopback`: so is the connection."""
    ip = _plain(address)
    if ip.is_link_local:
        return "a link-local address, where clouds keep their credentials"
    if ip.is_unspecified:
        return "no address at all, which leads to whatever listens on this machine"
    if ip.is_multicast:
        return "an address of many machines"
    if ip.is_loopback and not loopback:
        return "this machine itself, and the connection's bootstrap is elsewhere"
    return None


def require_allowed(
    bootstrap: Sequence[Address], advertised: Iterable[Address], resolve: Resolve | None = None
) -> None:
    """AddressRefused unless clients may be sent to all that is advertised. A name that is not known
    here is nobody's door; the client says so itself."""
    resolve = resolve or _resolved
    loopback = any(_plain(found).is_loopback for at in bootstrap for found in resolve(*at))
    for host, port in advertised:
        for found in resolve(host, port):
            reason = refusal(found, loopback=loopback)
            if reason is not None:
                asked = ",".join(f"{host}:{port}" for host, port in bootstrap)
                named = f"{host}:{port}" if found == host else f"{host}:{port} ({found})"
                raise AddressRefused(
                    f"the brokers at {asked} send clients on to {named}, which is {reason}; "
                    "correct advertised.listeners of that broker, or the connection's bootstrap"
                )


def require_allowed_brokers(cluster: Any) -> None:
    """The same of what a client of kafka-python has been told at the bootstrap, and before it goes
    anywhere else."""
    bootstrap, advertised = (
        [(broker.host, broker.port) for broker in brokers]
        for brokers in (cluster.bootstrap_brokers(), cluster.brokers())
    )
    require_allowed(bootstrap, advertised)


def _plain(address: str) -> IPv4Address | IPv6Address:
    """An address as it is, also where it comes as one of IPv6 that stands for one of IPv4."""
    ip = ip_address(address)
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _resolved(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a name that is none makes a codec fail
        return []
    return [str(address[0]) for *_, address in found]
