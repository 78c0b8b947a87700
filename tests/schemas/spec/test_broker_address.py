"""Advertised addresses: private networks are allowed, this machine and its link are refused."""

from __future__ import annotations

import pytest

from schemas.spec.broker_address import AddressRefused, refusal, require_allowed

NEVER = [
    "169.254.169.254",  # where clouds serve credentials
    "169.254.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:169.254.169.254",
    "0.0.0.0",
    "::",
    "::ffff:0.0.0.0",
    "224.0.0.1",
    "239.1.2.3",
    "ff02::1",
]
LOOPBACK = ["127.0.0.1", "127.0.0.99", "127.1.2.3", "::1", "::ffff:127.0.0.1"]
ALLOWED = [
    "10.0.0.7",
    "172.16.4.4",
    "192.168.1.2",
    "100.64.0.1",
    "fd00::7",
    "203.0.113.9",
    "2001:db8::1",
    "::ffff:10.0.0.7",
]


@pytest.mark.parametrize("address", NEVER)
def test_what_no_broker_is_at_is_refused_whatever_the_bootstrap(address: str) -> None:
    assert refusal(address, loopback=False)
    assert refusal(address, loopback=True)


@pytest.mark.parametrize("address", LOOPBACK)
def test_this_machine_is_for_who_begins_on_it(address: str) -> None:
    assert refusal(address, loopback=False)
    assert refusal(address, loopback=True) is None


@pytest.mark.parametrize("address", ALLOWED)
def test_a_companys_own_network_is_where_brokers_are(address: str) -> None:
    assert refusal(address, loopback=False) is None


NAMES = {
    "kafka.example": ["10.0.0.7"],
    "two-faces.example": ["10.0.0.7", "169.254.169.254"],
    "localhost": ["::1", "127.0.0.1"],
    "unknown.example": [],
}


def resolve(host: str, _port: int) -> list[str]:
    return NAMES.get(host, [host])


@pytest.mark.parametrize(
    ("bootstrap", "advertised", "allowed"),
    [
        ("kafka.example", "10.0.0.8", True),
        ("kafka.example", "unknown.example", True),
        ("kafka.example", "localhost", False),
        ("kafka.example", "two-faces.example", False),
        ("localhost", "127.0.0.99", True),
        ("localhost", "localhost", True),
        ("localhost", "169.254.169.254", False),
        ("127.0.0.1", "0.0.0.0", False),
        ("unknown.example", "127.0.0.1", False),
    ],
)
def test_names_are_what_they_resolve_to(bootstrap: str, advertised: str, allowed: bool) -> None:
    servers, brokers = [(bootstrap, 9092)], [("10.0.0.1", 9092), (advertised, 80)]
    if allowed:
        require_allowed(servers, brokers, resolve)
        return
    with pytest.raises(AddressRefused, match=f"{bootstrap}:9092 advertise {advertised}"):
        require_allowed(servers, brokers, resolve)


def test_one_bootstrap_address_on_this_machine_is_enough() -> None:
    servers = [("kafka.example", 9092), ("localhost", 9092)]
    require_allowed(servers, [("127.0.0.1", 9093)], resolve)


def test_an_address_in_an_old_spelling_is_seen_through() -> None:
    for spelling in ("2852039166", "0xa9fea9fe", "169.254.43518"):
        with pytest.raises(AddressRefused, match=r"\(169\.254\.169\.254\)"):
            require_allowed([("127.0.0.1", 9092)], [(spelling, 80)])


def test_a_host_that_is_no_name_at_all_is_left_to_the_client() -> None:
    for host in ("", "a" * 300, "a..b", "\udcff", "no such name"):
        require_allowed([("127.0.0.1", 9092)], [(host, 80)])
