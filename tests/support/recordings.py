"""Messages that a real canal sent, with the answers of the database that it read.

make cdc-test ARGS="-k recording --rewrite" ──► tests/recordings/*.json.gz ──► make test
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from jobs.offline.replay import replay
from tests.support.database_rows import differences

DIRECTORY = Path(__file__).resolve().parents[1] / "recordings"
RUN_MAX = 40  # messages of a partition that arrive in a row


@dataclass(frozen=True, slots=True)
class Recording:
    """The messages of one table's topic, by partition, and the truth of one query."""

    table: str
    source: str  # versions of the database and of canal
    columns: Mapping[str, str]
    query: str
    keys: list[str]  # the group columns
    truth: list[dict[str, str | None]]
    partitions: list[list[str]]
    repeats: bool  # canal was killed and set back, so that only `dedupe: pk` is exact

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(gzip.decompress(path.read_bytes())))

    def save(self, path: Path) -> None:
        text = json.dumps(asdict(self), ensure_ascii=False, indent=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))

    @property
    def truncates(self) -> bool:
        """Whether the table was emptied by a TRUNCATE, which only `dedupe: pk` can apply."""
        return any('"type":"TRUNCATE"' in text for texts in self.partitions for text in texts)

    @property
    def count(self) -> int:
        return sum(map(len, self.partitions))

    def spec(self, **sections: Any) -> dict[str, Any]:
        return {
            "name": "recorded",
            "source": {"topic": "recorded", "database": "shop", "table": self.table},
            "columns": dict(self.columns),
            "query": self.query,
            "minibatch": {"size": 100},
            "on_truncate": "apply" if self.truncates else "stop",
            **sections,
        }

    def interleaved(self, seed: int) -> Iterator[dict[str, Any]]:
        """Yield all messages as steps: each partition in its order, the partitions in any."""
        chance = random.Random(seed)
        places = dict.fromkeys(range(len(self.partitions)), 0)
        while places:
            partition = chance.choice(list(places))
            messages = self.partitions[partition]
            # Now and then all that a partition has, as when a reader falls behind with the others.
            run = chance.choice((1, 3, RUN_MAX, len(messages)))
            for offset in range(places[partition], min(places[partition] + run, len(messages))):
                yield {"message": messages[offset], "partition": partition, "offset": offset}
            places[partition] += run
            if places[partition] >= len(messages):
                del places[partition]

    def folded(self, seed: int, **sections: Any) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Replay an interleaving; return the rows at the end, and why messages were refused."""
        rows: dict[str, Mapping[str, Any]] = {}
        refused: list[str] = []
        for output in replay(self.spec(**sections), self.interleaved(seed)):
            if "rejected" in output:
                refused.append(output["rejected"]["reason"])
            if "op" not in output:
                continue
            key = json.dumps([output["row"][name] for name in self.keys])
            if output["op"] in ("+I", "+U"):
                rows[key] = output["row"]
            else:
                assert rows.pop(key) == output["row"], "it retracts another row"
        return list(rows.values()), refused

    def problems(self, seed: int, **sections: Any) -> list[str]:
        """Return each difference between a folded interleaving and the truth."""
        rows, refused = self.folded(seed, **sections)
        lost, wrong = differences(rows, self.truth, self.keys)
        return [f"refused: {reason}" for reason in refused] + lost + wrong
