"""Which caches the running tree should keep, and whether to select anew: paper 1 §4.5 in one call.

Problem: `caches.adaptive` follows a join while it runs, and a replan keeps nothing between calls. Method: it is told of two moments, that of the
statistics which the running plan was made for, at which its caches were chosen, and now. So its rules apply as in the paper: a used cache whose
net benefit has turned negative is dropped at once (under eased statistics too, so that noise drops none); caches are selected anew only if
the benefit or cost of a candidate has moved by a fifth. The paper estimates both while the join runs; here they are the cost model's, from the rates,
selectivities and distinct values that were measured. Caches that share entries share what keeping these costs by what each saves.
Guarantee: that of the rules. Complexity: linear in the candidates of the running orders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from models.request import CacheMode
from solvers.caches.adaptive import AdaptiveCaches, Measured, Segment
from solvers.caches.cached_plan import Chosen
from solvers.caches.candidates import CacheCandidate, Pipelines, prefix_candidates
from solvers.caches.given import Place
from solvers.caches.global_caches import global_candidates
from solvers.replanning.question import Question
from solvers.replanning.ways import Priced, price

__all__ = ["Reconsidered", "reconsidered"]

_Name = tuple[int, int, int, int, int]
"""Where a cache stands: its join, the arriving input, first and last step, and what keeps it up to date."""


@dataclass(frozen=True, slots=True)
class Reconsidered:
    """What is to become of the running tree's caches."""

    kept: tuple[Place, ...]
    """The running caches that go on."""
    dropped: tuple[Place, ...]
    """Those that cost more than they save, or that the request does not allow."""
    select: bool
    """Whether a figure has moved so far that caches are to be selected anew."""


def reconsidered(question: Question) -> Reconsidered:
    """What the rules say of the running tree's caches."""
    places, mode = question.way.places, question.now.options.caches
    if mode is CacheMode.OFF or not any(len(join.blocks) > 2 for join in question.running.tree.joins):
        return Reconsidered((), places, False) if mode is CacheMode.OFF else Reconsidered(places, (), False)
    used = {_of_place(place) for place in places}
    before, now, eased = (_figures(priced, mode) for priced in (price(question.before, question.way), question.running, question.running_eased))
    states = AdaptiveCaches({name: Segment(name[:2], name[2], name[3]) for name in sorted(before.keys() & now.keys())}, lambda _: used)
    states.reoptimize(before)
    dropped = {name for name in states.observe(now) if eased[name].net < 0.0} | (used - now.keys())
    states.begin_profiling()
    select = states.reoptimize(now)
    return Reconsidered(
        tuple(place for place in places if _of_place(place) not in dropped),
        tuple(place for place in places if _of_place(place) in dropped),
        select,
    )


def _of_place(place: Place) -> _Name:
    return place.join, place.arriving, place.first, place.last, place.kept


def _figures(priced: Priced, mode: CacheMode) -> dict[_Name, Measured]:
    """Benefit and cost of every cache that the running orders allow, those in use with what they hold."""
    generate = prefix_candidates if mode is CacheMode.PREFIX else global_candidates
    model, attributes = priced.problem.model, priced.problem.attributes

    def name(number: int, c: CacheCandidate) -> _Name:
        return priced.tree.nodes[number].mask, priced.tree.joins[number].blocks[c.pipeline], c.first, c.last, c.kept

    found = {}
    for number, join in enumerate(priced.tree.joins):
        for c in generate(model, attributes, Pipelines.of(join)) if len(join.blocks) > 2 and not model.graph.tables else ():
            found[name(number, c)] = Measured(c.figures.benefit, c.figures.update)
    chosen = priced.cached.chosen if priced.cached else ()
    for use in chosen:
        if mode is not CacheMode.PREFIX or use.candidate.is_prefix:
            found[name(use.join, use.candidate)] = Measured(use.candidate.figures.benefit, _cost(use, chosen))
    return found


def _cost(use: Chosen, chosen: Iterable[Chosen]) -> float:
    """What keeping its entries costs it: of what caches that share them pay together, its part by what it saves."""
    benefit = use.candidate.figures.benefit
    saved = sum(other.candidate.figures.benefit for other in chosen if other.group == use.group and other.candidate.figures.benefit > 0.0)
    return use.candidate.figures.update * (benefit / saved) if benefit > 0.0 else 0.0
