"""What a real canal sent folds to what its database answered, however the partitions interleave.

`make cdc-test ARGS="-k recording --rewrite"` records anew.
"""

from __future__ import annotations

import pytest

from tests.support.recordings import DIRECTORY, Recording

RECORDINGS = {path.name.partition(".")[0]: Recording.load(path) for path in DIRECTORY.glob("*.gz")}
# A plain job counts again what canal repeats.
ONCE = [name for name, recording in RECORDINGS.items() if not recording.repeats]
DEDUPE = {"primary_key": ["id"], "dedupe": "pk"}
SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_with_dedupe_any_interleaving_is_the_database(name: str, seed: int) -> None:
    assert RECORDINGS[name].problems(seed, **DEDUPE) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(ONCE))
def test_without_dedupe_any_interleaving_is_the_database(name: str, seed: int) -> None:
    assert RECORDINGS[name].problems(seed) == []
