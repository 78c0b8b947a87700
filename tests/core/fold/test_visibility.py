"""The table of visibilities is complete, and says which transitions are impossible."""

from __future__ import annotations

from itertools import product

import pytest

from jobs.core.fold.visibility import Action, Visibility, next_visibility

BEFORE: list[Visibility | None] = [None, *Visibility]
IMPOSSIBLE = {
    (None, Action.CLOSE),
    (Visibility.WITHHELD, Action.CLOSE),
    (Visibility.UNSHOWN, Action.CLOSE),
    *((Visibility.CLOSED, action) for action in Action),
}


@pytest.mark.parametrize(("before", "action"), list(product(BEFORE, Action)))
def test_a_transition_is_in_the_table_or_impossible(
    before: Visibility | None, action: Action
) -> None:
    if (before, action) in IMPOSSIBLE:
        with pytest.raises(KeyError):
            next_visibility(before, action)
    else:
        next_visibility(before, action)


def test_a_group_is_withheld_until_it_is_emitted() -> None:
    for before in (None, Visibility.SHOWN, Visibility.HIDDEN):
        withheld = next_visibility(before, Action.WITHHOLD)
        assert withheld in (Visibility.WITHHELD, Visibility.UNSHOWN)
        assert next_visibility(withheld, Action.WITHHOLD) is withheld
        assert next_visibility(withheld, Action.EMIT) is Visibility.SHOWN


def test_the_numbers_of_visibilities_are_part_of_the_format() -> None:
    assert [int(each) for each in Visibility] == [0, 1, 2, 3, 4]
    assert [each.name for each in Visibility] == [
        "SHOWN",
        "WITHHELD",
        "UNSHOWN",
        "CLOSED",
        "HIDDEN",
    ]
