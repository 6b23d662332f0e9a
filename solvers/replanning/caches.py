"""Which caches the running tree should keep, and whether to select anew: paper 1 §4.5 in one call.

Problem: `caches.adaptive` follows a join while it runs, and a replan keeps nothing between calls. Method: it is told of two moments, that of the
statistics which the running plan was made for, at which its caches were chosen, and now. So its rules apply as in the paper: a used cache whose
net benefit has turned negative is dropped at once (under eased statistics too, so that noise drops none); caches are selected anew only if
the benefit or cost of a candidate has moved by a fifth, those in use looked at first. The paper estimates both while the join runs; here they are
the cost model's, from the rates, selectivities and distinct values that were measured. Caches that share entries share what keeping these
costs by what each saves.
Guarantee: that of the rules. Complexity: linear in the candidates of the running orders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
    before = price(question.before, question.way)
    was, now, eased = (_used(priced, mode) for priced in (before, question.running, question.running_eased))
    states = _as_chosen(was)
    dropped = {name for name in states.observe(now) if eased[name].net < 0.0} | ({_of_place(place) for place in places} - now.keys())
    return Reconsidered(
        tuple(place for place in places if _of_place(place) not in dropped),
        tuple(place for place in places if _of_place(place) in dropped),
        states.has_moved(now) or _another_moved(before, question.running, mode),
    )


def _another_moved(before: Priced, now: Priced, mode: CacheMode) -> bool:
    """Whether a figure of a cache that is not in use has moved so far. Only asked where none of a used one has: there may be many."""
    was, is_now = ({**_possible(priced, mode), **_used(priced, mode)} for priced in (before, now))
    known = sorted(was.keys() & is_now.keys())
    states = _as_chosen({name: was[name] for name in known}, _used(before, mode))
    states.begin_profiling()
    return states.reoptimize({name: is_now[name] for name in known})


def _as_chosen(measured: Mapping[_Name, Measured], used: Collection[_Name] | None = None) -> AdaptiveCaches[_Name]:
    """The states as the last selection left them: `used`, or all of them, in use."""
    chosen = measured.keys() if used is None else used
    states = AdaptiveCaches({name: Segment(name[:2], name[2], name[3]) for name in sorted(measured)}, lambda _: chosen)
    states.reoptimize(measured)
    return states


def _of_place(place: Place) -> _Name:
    return place.join, place.arriving, place.first, place.last, place.kept


def _possible(priced: Priced, mode: CacheMode) -> dict[_Name, Measured]:
    """Benefit and cost of every cache that the running orders allow."""
    generate = prefix_candidates if mode is CacheMode.PREFIX else global_candidates
    model, attributes = priced.problem.model, priced.problem.attributes
    return {
        _name(priced, number, c): Measured(c.figures.benefit, c.figures.update)
        for number, join in enumerate(priced.tree.joins)
        if len(join.blocks) > 2 and not model.graph.tables
        for c in generate(model, attributes, Pipelines.of(join))
    }


def _used(priced: Priced, mode: CacheMode) -> dict[_Name, Measured]:
    """Benefit and cost of the caches in use that the request allows, with what they hold."""
    chosen = priced.cached.chosen if priced.cached else ()
    allowed = [use for use in chosen if mode is not CacheMode.PREFIX or use.candidate.is_prefix]
    return {_name(priced, use.join, use.candidate): Measured(use.candidate.figures.benefit, _cost(use, chosen)) for use in allowed}


def _name(priced: Priced, number: int, c: CacheCandidate) -> _Name:
    return priced.tree.nodes[number].mask, priced.tree.joins[number].blocks[c.pipeline], c.first, c.last, c.kept


def _cost(use: Chosen, chosen: Iterable[Chosen]) -> float:
    """What keeping its entries costs it: of what caches that share them pay together, its part by what it saves."""
    benefit = use.candidate.figures.benefit
    saved = sum(other.candidate.figures.benefit for other in chosen if other.group == use.group and other.candidate.figures.benefit > 0.0)
    return use.candidate.figures.update * (benefit / saved) if benefit > 0.0 else 0.0
