"""The plain staircase keeps what no other beats, each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solvers.model.staircase import undominated

Step = tuple[int, int, int]
FEW = st.integers(0, 5)  # few different figures, so that many are equal


@given(st.lists(st.tuples(FEW, FEW, FEW), max_size=20))
def test_what_no_other_beats_stays_and_nothing_else(items: list[Step]) -> None:
    kept = undominated(items, lambda item: (item[0], item[1]), lambda item: item[2])
    assert kept == sorted(kept) and len({item[:2] for item in kept}) == len(kept)
    for item in items:
        beaten = [other for other in items if other[0] <= item[0] and other[1] <= item[1] and other[:2] != item[:2]]
        least = min(other for other in items if other[:2] == item[:2])
        assert (item in kept) == (not beaten and item == least)


@given(st.lists(st.tuples(FEW, FEW, FEW), max_size=20))
def test_of_equals_the_first_stays_where_nothing_tells_them_apart(items: list[Step]) -> None:
    for item in undominated(items, lambda item: (item[0], item[1])):
        assert item == next(other for other in items if other[:2] == item[:2])
