"""Why this plan: short sentences a person can use (contract §3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from models.plan import Proof, Shortfall, Termination
from models.request import Objective
from models.table import TableAccess
from solvers.common import words
from solvers.jtree.search import Found, Problem
from solvers.jtree.tables.joins import likely_ways
from solvers.model.cost import CostModel, PricedJoin, PricedTree
from solvers.model.probe_order import best_join
from solvers.model.sensitivity import lists_selectivities
from solvers.model.tree import Join, leaf_mask
from solvers.model.wide_join import WideProbes
from solvers.plan.outcome import Outcome
from solvers.plan.tables import reasons, waiting_warnings

__all__ = ["explain", "warnings_of"]

TABLES_EXPLAINED = 20  # each has a choice of its own
SENTENCES_PER_TOPIC = 3  # the largest few; the rest can be read in the plan's operators
WIDEST_ALTERNATIVE = 10  # inputs up to which a join is ordered again just to say what a kept subresult saves

_OBJECTIVES = {
    Objective.MIN_CPU: "uses less CPU",
    Objective.MIN_MEMORY: "uses less memory",
    Objective.MAX_HEADROOM: "leaves more headroom",
}


_ENDED = {
    Termination.COMPLETE: (),
    Termination.TIME_LIMIT: ("The search ended at its time limit.",),
    Termination.STOPPED: ("The search ended early, as it was asked to.",),
}


def explain(problem: Problem, outcome: Outcome, priced: PricedTree, shortfall: Shortfall | None) -> list[str]:
    """What the plan uses, what is proven, and, unless it is to be brief, the reasons for its largest choices."""
    found = outcome.found
    said = [_usage(problem, priced), *_proof(problem, found, shortfall), *_ENDED[outcome.termination], *found.notes]
    if outcome.brief:
        return said
    return [
        *said,
        *_kept_subresults(problem.model, priced),
        *_probe_orders(problem.model, priced),
        *islice(_scanned_states(problem.model, priced), SENTENCES_PER_TOPIC),
        *islice(reasons(problem, priced, outcome.cached.misses if outcome.cached else {}), TABLES_EXPLAINED),
    ]


def _usage(problem: Problem, priced: PricedTree) -> str:
    caps, count = problem.caps, len(priced.nodes)
    cpu = words.cpu(priced.cpu) + (f" of {words.cpu(caps.cpu)}" if math.isfinite(caps.cpu) else "")
    memory = words.bytes_(priced.memory_bytes) + (f" of {words.bytes_(caps.memory_bytes)}" if math.isfinite(caps.memory_bytes) else "")
    shape = f"{count} join{'s' if count != 1 else ''}" if count else "A single stream"
    return f"{shape}, {cpu} CPU, {memory} memory, {words.per_second(priced.output_rate)} out."


def _proof(problem: Problem, found: Found, shortfall: Shortfall | None) -> list[str]:
    better = _OBJECTIVES[problem.objective]
    if shortfall is None:
        if found.proof is Proof.OPTIMAL:
            return [f"Proven: among {found.space} within the caps none {better}."]
        if found.proof is Proof.BOUNDED:
            return [f"The best found among {found.space}; the bound says how much better a plan could at most be."]
        return [f"The best found among {found.space}; nothing is proven of it."]
    verdict = "Proven: among {} none fits the caps." if found.proof is Proof.OPTIMAL else "Among {} none was found that fits the caps."
    sentences = [verdict.format(found.space)]
    if shortfall.rate_scale is not None:
        sentences.append(f"A plan would fit if all rates were {shortfall.rate_scale:.3g} times what they are.")
    return sentences


def _label(model: CostModel, mask: int) -> str:
    return model.graph.label(mask)


def _kept_subresults(model: CostModel, priced: PricedTree) -> list[str]:
    """What each of the largest kept subresults costs in memory and saves in CPU, against joining its inputs in its user's join."""
    figures = {node.mask: (node, join) for node, join in zip(priced.nodes, priced.joins, strict=True)}
    users = {leaf_mask(child): node for node in priced.nodes for child in node.inputs if isinstance(child, Join)}
    held_bytes = {node.mask: priced.sizes[node.mask] * model.tuple_bytes(node.mask) for node in priced.nodes[:-1]}
    kept = sorted(priced.nodes[:-1], key=lambda node: (-held_bytes[node.mask], node.mask))
    sentences = []
    for node in kept:
        user = users[node.mask]
        blocks = [leaf_mask(child) for child in user.inputs if leaf_mask(child) != node.mask] + [leaf_mask(child) for child in node.inputs]
        if len(blocks) > WIDEST_ALTERNATIVE or not model.graph.connected(user.mask):
            continue
        merged = _merged(model, sorted(blocks))
        saved = merged - figures[node.mask][1].cpu - figures[user.mask][1].cpu
        held = words.bytes_(held_bytes[node.mask])
        if not math.isfinite(saved):
            continue
        effect = f"saves {words.cpu(saved)} CPU" if saved >= 0 else f"costs {words.cpu(-saved)} CPU"
        sentences.append(f"Keeping {_label(model, node.mask)} takes {held} and {effect}.")
        if len(sentences) == SENTENCES_PER_TOPIC:
            break
    return sentences


def _merged(model: CostModel, blocks: list[int]) -> float:
    """The CPU of one join of these inputs, at its cheapest."""
    if not model.graph.tables:
        return best_join(model, blocks).cpu
    return min((way.cpu for way in likely_ways(model, blocks)), default=math.inf)


def _probe_orders(model: CostModel, priced: PricedTree) -> list[str]:
    """Why the costliest pipelines of multi-way joins start where they start."""
    pipelines = []
    for node, join in zip(priced.nodes, priced.joins, strict=True):
        if len(join.blocks) > 2:
            for k, pipeline in enumerate(join.pipelines):
                if not pipeline.probes:
                    continue  # a table
                probes = pipeline.probes
                cpu = probes.cpu() if isinstance(probes, WideProbes) else math.fsum(probe.cpu for probe in probes)
                pipelines.append((-cpu, node.mask, k, join))
    pipelines.sort(key=lambda entry: entry[:3])
    sentences = (_first_step(model, join, k) for _, _, k, join in pipelines)
    return list(islice((sentence for sentence in sentences if sentence), SENTENCES_PER_TOPIC))


def _first_step(model: CostModel, join: PricedJoin, k: int) -> str:
    probes = join.pipelines[k].probes
    chosen, block = probes[0].target, join.blocks[k]
    around = model.graph.around(block)
    unbound = sum(1 << table for table, place in join.asked if not model.graph.offers[table][place].bindable(block))
    others = [t for t in range(len(join.blocks)) if t not in (k, chosen) and around & join.blocks[t] and not join.blocks[t] & unbound]
    if not others:
        return ""
    made = {t: model.produced(block, block | join.blocks[t]) for t in others}
    other = min(others, key=lambda t: (made[t], t))
    who, first, second = (_label(model, mask) for mask in (block, join.blocks[chosen], join.blocks[other]))
    here, there = words.amount(probes[0].rate_out), words.per_second(made[other])
    if there == f"{here} tuples/s":
        return ""
    if probes[0].rate_out <= made[other]:
        return f"{who} probes {first} before {second} because that leaves {here} instead of {there}."
    return f"{who} probes {first} before {second} although that leaves {here} instead of {there}: the steps after it cost less."


def _scanned_states(model: CostModel, priced: PricedTree) -> Iterator[str]:
    """States of binary joins that have no index although one could serve."""
    for join in priced.joins:
        if len(join.blocks) != 2:
            continue
        arriving = [pipeline.probes[0].rate_in if pipeline.probes else 0.0 for pipeline in join.pipelines]
        for k, block in enumerate(join.blocks):
            other = join.blocks[1 - k]
            if join.states[k].kept and not join.states[k].indexed and model.graph.hashable(other, block) and other & ~model.graph.tables:
                arrivals, probes = words.amount(arriving[k]), words.amount(arriving[1 - k])
                yield f"{_label(model, block)} is scanned, not indexed: {arrivals} arrivals a second, {probes} probes."


def warnings_of(problem: Problem, priced: PricedTree, tables: list[TableAccess]) -> list[str]:
    """What the caller should know before running the plan."""
    graph, warnings = problem.model.graph, []
    if len(graph) == 1:
        warnings.append("The query has one stream: there is nothing to join.")
    if len(graph.components) > 1:
        parts = ", ".join(graph.label(component) for component in graph.components)
        warnings.append(f"The join graph is not connected: the root joins every pair of results of {parts}.")
    if not lists_selectivities(priced, graph):
        warnings.append("The plan is too wide to say for each selectivity where it stays qualified: validity lists rates only.")
    if problem.model.rate(graph.all) == 0.0:
        warnings.append("By its selectivities the query has no results.")
    scans = [
        f"{graph.label(join.blocks[k])} scans {graph.label(join.blocks[probe.target])}"
        for join in priced.joins
        if (unreached := {t for t, block in enumerate(join.blocks) if not graph.hashable(graph.all & ~block, block)})
        for k, pipeline in enumerate(join.pipelines)
        for probe in pipeline.probes
        if probe.target in unreached and not probe.asked
    ]
    if scans and len(graph.components) == 1:
        warnings.append(f"No equality predicate reaches some states, so they are scanned: {'; '.join(scans[:SENTENCES_PER_TOPIC])}.")
    return [*warnings, *waiting_warnings(tables)]
