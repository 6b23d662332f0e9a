"""The searches for a join tree: what each is called on the wire, and what it can do.

This is the one list of them. To add a search: a file `solvers/jtree/NAME.py` with a function `NAME` (`solvers.jtree.search` says what it takes and
returns), an entry here, and a golden test. Requests, the OpenAPI document, the command line, the page, frontiers, caches and allocation
read the entry. The function is found by its name (`solvers.jtree.registry`), because models know no solvers.

Nothing but the standard library is imported here: the command line lists the names before it loads anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Self

__all__ = ["Abilities", "Able", "Compiled", "Method"]


class Able(StrEnum):
    """Names on the wire, each with what it can do: a member is (name, abilities). A subclass says which kind of abilities `can` are."""

    _value_: str

    def __new__(cls, name: str, can: Any) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.can = name, can  # type: ignore[attr-defined]
        return member


class Compiled(Enum):
    """Which compiled code a search runs, to be loaded before its time limit starts."""

    NONE = "none"
    BY_SIZE = "that of exact search, which for few streams is a part of all"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What one search can do."""

    says: str
    """What it finds, in a sentence for people."""
    whole_frontier: bool = False
    """Whether it finds every trade-off among all join trees; the others give those among the plans that they found."""
    any_tree: bool = False
    """Whether any join tree may be its answer, so that others may be tried as well when the load is shed."""
    compiled: Compiled = Compiled.ALL
    largest: int | None = None
    """Streams of a connected part up to which `whole_frontier` holds; beyond, it answers with one good plan. None: no limit of its own."""


class Method(Able):
    """How the join tree is searched."""

    can: Abilities

    AUTO = (
        "auto",
        Abilities(
            "The strongest search that fits the time limit.",
            whole_frontier=True,
            any_tree=True,
            compiled=Compiled.BY_SIZE,
            largest=40,  # beyond, not even a chain's exact search ends within seconds
        ),
    )
    EXACT = (
        "exact",
        Abilities("The best of all join trees, proven where the time allows.", whole_frontier=True, any_tree=True, compiled=Compiled.BY_SIZE),
    )
    CP_SAT = ("cp_sat", Abilities("The same by an integer program: a second opinion for small graphs.", any_tree=True))
    TWO_LAYER = ("two_layer", Abilities("Paper 3's heuristic: mjoin and binary tree, then from each towards the other."))
    STATE_SELECTION = ("state_selection", Abilities("Paper 3's walk from the mjoin: keeps more and more results to save CPU."))
    STATE_REMOVAL = ("state_removal", Abilities("Paper 3's walk from the binary tree: drops kept results to save memory."))
    MJOIN = ("mjoin", Abilities("One join of all streams: the least memory.", compiled=Compiled.NONE))
    BJTREE = ("bjtree", Abilities("The best tree of binary joins.", compiled=Compiled.NONE))
    ANYTIME = ("anytime", Abilities("A good plan made better part by part until the time is over: for large graphs.", any_tree=True))
