"""Generate changes of two tables, orders and their customers, and the correct result of their join.

    orders    id, customer_id, amount, note    most changes; the partitions 0 to 3
    customers id, region, name                 all of them first; then a share of the changes

A customer moves to another region, and all of his orders with him. The number of orders grows to
`live_orders`, and then stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bench.generator import CHANGES_PER_MS, CHUNK_CHANGES, STREAM_BEGIN_MS, Batches, Truth
from bench.topic import PARTITIONS

ORDERS = {"id": "BIGINT", "customer_id": "BIGINT", "amount": "INT"}
CUSTOMERS = {"id": "BIGINT", "region": "STRING"}

_ORDER = (
    b'{"data":[{"id":"%d","customer_id":"%d","amount":"%d","note":"leave it at the gate %d"}],'
    b'"database":"shop","es":%d,"id":%d,"isDdl":false,"mysqlType":{"id":"bigint",'
    b'"customer_id":"bigint","amount":"int","note":"varchar(255)"},"old":%s,"pkNames":["id"],'
    b'"sql":"","sqlType":{"id":-5,"customer_id":-5,"amount":4,"note":12},"table":"orders",'
    b'"ts":%d,"type":"%s"}'
)
_CUSTOMER = (
    b'{"data":[{"id":"%d","region":"%s","name":"customer %d"}],"database":"shop","es":%d,"id":%d,'
    b'"isDdl":false,"mysqlType":{"id":"bigint","region":"varchar(64)","name":"varchar(255)"},'
    b'"old":%s,"pkNames":["id"],"sql":"","sqlType":{"id":-5,"region":12,"name":12},'
    b'"table":"customers","ts":%d,"type":"%s"}'
)


@dataclass(frozen=True, slots=True)
class OrdersShape:
    """The parameters of both tables; shares are fractions of all changes unless noted."""

    changes: int = 6_000_000
    live_orders: int = 1_000_000
    customers: int = 200_000
    regions: int = 1_000
    customer_share: float = 0.01
    update_share: float = 0.6
    move_share: float = 0.1  # of the updates: the order gets another customer
    skew: float = 1.16  # Pareto's alpha, of orders by customer
    seed: int = 20_260


@dataclass(slots=True)
class OrdersTables:
    """Both tables after all changes so far, and the generator of further ones."""

    shape: OrdersShape
    ids: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)
    regions: list[bytes] = field(default_factory=list)  # by customer; the probes' come last
    next_id: int = 1
    sequence: int = 0
    probes: int = 0

    def stream(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield partition and messages of all customers, and of all changes of the shape."""
        names = np.random.default_rng(self.shape.seed).integers(
            0, self.shape.regions, self.shape.customers
        )
        for number in range(0, self.shape.customers, CHUNK_CHANGES):
            batches = self._empty()
            for region in names[number : number + CHUNK_CHANGES].tolist():
                self._add_customer(b"region-%04d" % region, None, batches)
            yield from enumerate(batches)
        for begin in range(0, self.shape.changes, CHUNK_CHANGES):
            yield from enumerate(self.changes(min(CHUNK_CHANGES, self.shape.changes - begin)))

    def changes(self, count: int, now_ms: int | None = None) -> Batches:
        """Return the next messages by partition: those of orders, then those of customers."""
        shape, batches = self.shape, self._empty()
        ids, owners, amounts = self.ids, self.owners, self.amounts
        updates = shape.customer_share + shape.update_share
        moves = shape.customer_share + shape.update_share * shape.move_share
        for fate, place, owner, amount, region in self._draws(count):
            live, old = len(ids), b"null"
            at = int(place * live)
            if fate < shape.customer_share:
                self._move_customer(int(place * shape.customers), region, now_ms, batches)
                continue
            if fate < updates and live:
                kind, order = b"UPDATE", ids[at]
                if fate < moves and owner != owners[at]:
                    old, amount = b'[{"customer_id":"%d"}]' % owners[at], amounts[at]
                    owners[at] = owner
                else:
                    old, owner = b'[{"amount":"%d"}]' % amounts[at], owners[at]
                    amount += amount == amounts[at]
                    amounts[at] = amount
            elif not live or live < shape.live_orders or fate < (1 + updates) / 2:
                kind, order = b"INSERT", self.next_id
                self._add_order(owner, amount)
            else:
                kind, order, owner, amount = b"DELETE", ids[at], owners[at], amounts[at]
                for column in (ids, owners, amounts):
                    column[at] = column[-1]
                    del column[-1]
            values = order, owner, amount, order % 97
            batches[order % PARTITIONS].append(self._fill(_ORDER, values, old, kind, now_ms))
        return batches

    def probe(self, now_ms: int) -> tuple[str, int, bytes]:
        """Return region, partition and message of an order, the first of its region.

        Only this change can cause the region's first result. `add_probes` made its customer. No
        later change is of this order: with a deletion in its epoch it would never be seen.
        """
        region = b"probe-%06d" % self.probes
        owner = self.shape.customers + 1 + self.probes
        assert self.regions[owner - 1] == region, "add_probes has added its customer"
        self.probes += 1
        order = self.next_id
        self.next_id += 1
        message = self._fill(_ORDER, (order, owner, 1, order % 97), b"null", b"INSERT", now_ms)
        return region.decode(), order % PARTITIONS, message

    def add_probes(self, count: int) -> Batches:
        """Return the messages of so many customers, each of a region of his own."""
        batches = self._empty()
        for number in range(count):
            self._add_customer(b"probe-%06d" % number, None, batches)
        return batches

    def truth(self) -> Truth:
        truth: Truth = {}
        for owner, amount in zip(self.owners, self.amounts, strict=True):
            region = self.regions[owner - 1].decode()
            total, _, rows = truth.get(region, (0, 0, 0))
            truth[region] = (total + amount, 0, rows + 1)
        return truth | {f"probe-{at:06d}": (1, 0, 1) for at in range(self.probes)}

    def _add_order(self, owner: int, amount: int) -> None:
        self.ids.append(self.next_id)
        self.owners.append(owner)
        self.amounts.append(amount)
        self.next_id += 1

    def _add_customer(self, region: bytes, now_ms: int | None, batches: Batches) -> None:
        self.regions.append(region)
        customer = len(self.regions)
        message = self._fill(_CUSTOMER, (customer, region, customer), b"null", b"INSERT", now_ms)
        batches[PARTITIONS + customer % PARTITIONS].append(message)

    def _move_customer(self, at: int, region: int, now_ms: int | None, batches: Batches) -> None:
        before, after = self.regions[at], b"region-%04d" % region
        if after == before:
            after = b"region-%04d" % ((region + 1) % self.shape.regions)
        self.regions[at] = after
        customer, old = at + 1, b'[{"region":"%s"}]' % before
        message = self._fill(_CUSTOMER, (customer, after, customer), old, b"UPDATE", now_ms)
        batches[PARTITIONS + customer % PARTITIONS].append(message)

    def _empty(self) -> Batches:
        return [[] for _ in range(2 * PARTITIONS)]

    def _draws(self, count: int) -> Iterator[tuple[float, float, int, int, int]]:
        """Return fate, row, customer, amount and region of each change, from seed and position."""
        shape = self.shape
        random = np.random.default_rng([shape.seed, self.sequence])
        ranks = random.pareto(shape.skew, count) * (shape.customers / 20)
        return zip(
            random.random(count).tolist(),
            random.random(count).tolist(),
            (ranks.astype(np.int64) % shape.customers + 1).tolist(),
            random.integers(1, 1_000, count).tolist(),
            random.integers(0, shape.regions, count).tolist(),
            strict=True,
        )

    def _fill(
        self,
        template: bytes,
        values: tuple[bytes | int, ...],
        old: bytes,
        kind: bytes,
        now_ms: int | None,
    ) -> bytes:
        moment = STREAM_BEGIN_MS + self.sequence // CHANGES_PER_MS if now_ms is None else now_ms
        self.sequence += 1
        return template % (*values, moment, self.sequence, old, moment, kind)
