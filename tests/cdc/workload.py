"""Statements of an application, by a seed: the same seed gives the same statements.

Keys are remembered, so that statements meet rows that exist; the database alone knows their values.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

STATES = ("new", "paid", "sent", "returned")
CUSTOMERS = ("Anna", "anna", "ANNA ", "Zoë", "Köln GmbH", "李雷", "O'Neil", 'say "hi"', "😀", "")
ROLLED_BACK = 0.1
PARTLY_ROLLED_BACK = 0.1
BULK_MAX = 30

COLUMNS = {
    "id": "BIGINT",
    "customer": "STRING",
    "state": "STRING",
    "qty": "BIGINT",
    "price": "DECIMAL(12, 2)",
    "note": "STRING",
    "day": "DATE",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a job and its group columns; it runs in the database as it stands, or `truth`."""

    keys: list[str]
    text: str
    truth: str = ""


def queries(table: str) -> dict[str, Query]:
    """Return the queries over a table of the workload by the names of their views."""
    return {
        "customer": Query(
            ["customer"],
            "SELECT customer, COUNT(*) AS n, COUNT(note) AS notes, SUM(id) AS ids, "
            "SUM(qty) AS qty, SUM(price) AS price, MIN(price) AS low, MAX(id) AS last_id, "
            f"MAX(day) AS last_day FROM {table} GROUP BY customer",
        ),
        "total": Query(
            [],
            "SELECT COUNT(*) AS n, SUM(id) AS ids, MIN(id) AS first_id, "
            f"COUNT(DISTINCT customer) AS customers FROM {table}",
        ),
        "day": Query(
            ["day", "qty"],
            f"SELECT day, qty, COUNT(*) AS n, MAX(note) AS note FROM {table} "
            "WHERE qty > 2 GROUP BY day, qty",
        ),
        "state": Query(
            ["state"], f"SELECT state, COUNT(*) AS n, SUM(qty) AS qty FROM {table} GROUP BY state"
        ),
    }


def table_definition(table: str, state: str = "VARCHAR(10)") -> str:
    """Return the statement that creates a table; `state` is the type of that column."""
    return (
        f"CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, customer VARCHAR(40), "
        f"state {state} NOT NULL, qty INT NOT NULL, price DECIMAL(12,2), note TEXT, day DATE, "
        "code INT UNIQUE)"
    )


@dataclass(slots=True)
class Workload:
    """A history of one table. With `moves`, primary keys are updated and swapped too.

    `keys` has at least the keys of the table: a REPLACE may delete rows that it does not name.
    """

    table: str
    seed: int
    moves: bool = False
    keys: list[int] = field(default_factory=list)
    _next: int = 1
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def transactions(self, count: int) -> str:
        """Return the next transactions as one text of statements."""
        return "".join(self._transaction() for _ in range(count))

    def transactions_with(self, other: Workload, count: int) -> str:
        """Return transactions that change the tables of both, also in one statement."""
        found = []
        for _ in range(count):
            own, others = self._body(), other._body()
            both = (
                f"UPDATE {self.table} AS one JOIN {other.table} AS other USING (id) "
                f"SET one.qty = other.qty + 1, other.price = {self._price()} "
                f"WHERE one.id <= {self._key()}; "
            )
            found.append(f"BEGIN; {own}{others}{both}COMMIT;\n")
        return "".join(found)

    def _transaction(self) -> str:
        before = list(self.keys)
        body = self._body()
        if self._random.random() < ROLLED_BACK:
            self.keys = before
            return f"BEGIN; {body}ROLLBACK;\n"
        return f"BEGIN; {body}COMMIT;\n"

    def _body(self) -> str:
        body = "".join(self._statement() for _ in range(self._random.randint(1, 3)))
        if self._random.random() < PARTLY_ROLLED_BACK:
            before = list(self.keys)
            body += f"SAVEPOINT here; {self._statement()}ROLLBACK TO SAVEPOINT here; "
            self.keys = before
        return body

    def _statement(self) -> str:
        choices: dict[Callable[[], str], int] = {
            self._insert: 6,
            self._update: 6,
            self._update_range: 2,
            self._delete: 3,
            self._upsert: 2,
            self._replace: 2,
        }
        if self.moves:
            choices |= {
                self._move: 5,
                self._swap: 4,
                self._rotate: 2,
                self._return: 1,
                self._move_range: 1,
                self._shift: 2,
                self._upsert_key: 2,
                self._replace_by_code: 4,
            }
        if len(self.keys) < 5:
            return self._insert()
        (chosen,) = self._random.choices(list(choices), list(choices.values()))
        return chosen()

    def _insert(self) -> str:
        count = self._random.choice((1, 1, 2, 5, BULK_MAX))
        fresh = [self._fresh() for _ in range(count)]
        self.keys += fresh
        return f"INSERT INTO {self._into} VALUES {', '.join(map(self._row, fresh))}; "

    def _update(self) -> str:
        changes = (
            f"customer = {self._customer()}",
            f"qty = qty + {self._random.randint(1, 3)}",
            f"price = {self._price()}, note = NULL",
            f"state = {quote(self._random.choice(STATES))}, day = {self._day()}",
        )
        return f"UPDATE {self.table} SET {self._random.choice(changes)} WHERE id = {self._key()}; "

    def _update_range(self) -> str:
        low = self._key()
        where = f"id BETWEEN {low} AND {low + self._random.randint(1, 40)}"
        return f"UPDATE {self.table} SET customer = {self._customer()}, qty = 5 WHERE {where}; "

    def _delete(self) -> str:
        key = self._key()
        self.keys.remove(key)
        return f"DELETE FROM {self.table} WHERE id = {key}; "

    def _upsert(self) -> str:
        key = self._random.choice((self._key(), self._fresh()))
        if key not in self.keys:
            self.keys.append(key)
        return (
            f"INSERT INTO {self._into} VALUES {self._row(key)} "
            "ON DUPLICATE KEY UPDATE qty = qty + 1, customer = VALUES(customer); "
        )

    def _replace(self) -> str:
        key = self._random.choice((self._key(), self._fresh()))
        if key not in self.keys:
            self.keys.append(key)
        return f"REPLACE INTO {self._into} VALUES {self._row(key)}; "

    def _move(self) -> str:
        old, new = self._key(), self._fresh()
        self.keys[self.keys.index(old)] = new
        further = self._random.choice(("", f"customer = {self._customer()}, qty = 6, "))
        return f"UPDATE {self.table} SET {further}id = {new} WHERE id = {old}; "

    def _return(self) -> str:
        """A row takes a key that nobody has, and its own again."""
        key = self._key()
        return self._rekey(key, -key) + self._rekey(-key, key)

    def _move_range(self) -> str:
        """Several rows take new keys by one statement."""
        low = self._key()
        high = low + self._random.randint(1, 40)
        by = self._next + 1 - low
        self._next = high + by
        self.keys = [key + by if low <= key <= high else key for key in self.keys]
        return f"UPDATE {self.table} SET id = id + {by} WHERE id BETWEEN {low} AND {high}; "

    def _shift(self) -> str:
        """Each of the last rows takes the key of the next one, or of the one before."""
        ordered = sorted(self.keys)
        low = ordered[-self._random.randint(1, min(20, len(ordered)))]
        up = low - 1 in self.keys or self._random.random() < 0.5
        by, order = (1, "DESC") if up else (-1, "ASC")
        self._next += 1
        self.keys = [key + by if key >= low else key for key in self.keys]
        return f"UPDATE {self.table} SET id = id + {by} WHERE id >= {low} ORDER BY id {order}; "

    def _upsert_key(self) -> str:
        """An insert of a key that is there gives that row another key."""
        old, new = self._key(), self._fresh()
        self.keys.append(new)
        return (
            f"INSERT INTO {self._into} VALUES {self._row(old)} ON DUPLICATE KEY UPDATE id = {new}; "
        )

    def _replace_by_code(self) -> str:
        """The row with the same code goes; the binlog may have this as an update of its key."""
        key, code = self._fresh(), self._random.randint(1, 9)
        self.keys.append(key)
        into = f"{self.table} (code, {', '.join(COLUMNS)})"
        return f"REPLACE INTO {into} VALUES ({code}, {self._row(key).removeprefix('(')}; "

    def _swap(self) -> str:
        """Two rows exchange their keys through a key that nobody has."""
        one, other = self._random.sample(self.keys, 2)
        return self._rekey(one, -one) + self._rekey(other, one) + self._rekey(-one, other)

    def _rotate(self) -> str:
        first, second, third = self._random.sample(self.keys, 3)
        return (
            self._rekey(first, -first)
            + self._rekey(second, first)
            + self._rekey(third, second)
            + self._rekey(-first, third)
        )

    def _rekey(self, old: int, new: int) -> str:
        return f"UPDATE {self.table} SET id = {new} WHERE id = {old}; "

    @property
    def _into(self) -> str:
        return f"{self.table} ({', '.join(COLUMNS)})"

    def _fresh(self) -> int:
        self._next += 1
        return self._next

    def _key(self) -> int:
        return self._random.choice(self.keys)

    def _row(self, key: int) -> str:
        state, qty = quote(self._random.choice(STATES)), self._random.randint(0, 6)
        note = self._random.choice(("NULL", quote(f"note {key}"), quote("tab\there")))
        fields = (key, self._customer(), state, qty, self._price(), note, self._day())
        return f"({', '.join(map(str, fields))})"

    def _customer(self) -> str:
        return self._random.choice((*map(quote, CUSTOMERS), "NULL"))

    def _price(self) -> str:
        return f"{self._random.randint(-10_000, 1_000_000) / 100:.2f}"

    def _day(self) -> str:
        return self._random.choice(("NULL", f"'2026-01-{self._random.randint(1, 9):02}'"))


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
