"""A priced tree as a plan on the wire: operators, proof, headroom, validity, shortfall, fingerprint (contract §3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.fingerprint import fingerprint
from models.plan import (
    PLAN_FORMAT,
    Algorithm,
    Cost,
    Operator,
    OperatorKind,
    Pipeline,
    Plan,
    Probe,
    Proof,
    Shortfall,
    State,
    Validity,
)
from models.request import Objective, Query, Resources
from solvers.common.gap import gap_between
from solvers.jtree.search import Found, Problem
from solvers.model.cost import CostModel, PricedProbe, PricedTree
from solvers.model.graph import JoinGraph, bits
from solvers.model.operations import stepping
from solvers.model.sensitivity import headroom, validity
from solvers.model.tree import Join, Tree
from solvers.model.wide_join import WideProbes
from solvers.plan.explanation import explain, warnings_of
from solvers.plan.outcome import Outcome, value_of
from solvers.plan.tables import tables_of

BRIEF = "The time limit left no time to work out allocation, validity and the reasons for this plan."

OPERATOR_FIELDS, PIPELINE_FIELDS, PROBE_FIELDS, STATE_FIELDS, VALIDITY_FIELDS = (
    set(model.model_fields) for model in (Operator, Pipeline, Probe, State, Validity)
)

__all__ = ["build_plan", "gap_of", "normalised", "operators_of"]


def normalised(query: Query, graph: JoinGraph) -> Query:
    """The query with every estimated selectivity filled in: a plan stands on its own."""
    if all(predicate.selectivity is not None for predicate in query.predicates):
        return query
    predicates = [
        predicate if predicate.selectivity is not None else predicate.model_copy(update={"selectivity": edge.selectivity})
        for predicate, edge in zip(query.predicates, graph.edges, strict=True)
    ]
    return query.model_copy(update={"predicates": predicates})


def operators_of(problem: Problem, priced: PricedTree) -> list[Operator]:
    """The joins of a priced tree, flat, inputs before users, the root last.

    Nothing is validated but that figures fit a double: the types are those of the fields, and validating a join of 200 inputs takes half a second.
    """
    model, graph = problem.model, problem.model.graph
    ids = {node.mask: f"join-{number}" for number, node in enumerate(priced.nodes, 1)}

    def name(tree: Tree) -> str:
        return ids[tree.mask] if isinstance(tree, Join) else graph.names[tree]

    operators = []
    for node, join in zip(priced.nodes, priced.joins, strict=True):
        inputs = [name(child) for child in node.inputs]
        root, size = node is priced.nodes[-1], priced.sizes[node.mask]
        figures = (size * model.per_second(node.mask), 0.0 if root else size, 0.0 if root else size * model.tuple_bytes(node.mask), join.cpu)
        if not all(map(math.isfinite, figures)):
            raise model.out_of_range()
        fields = {
            "id": ids[node.mask],
            "kind": OperatorKind.BINARY_JOIN if len(inputs) == 2 else OperatorKind.MJOIN,
            "inputs": inputs,
            "streams": sorted(graph.names[i] for i in bits(node.mask)),
            "materialized": not root,
            **dict(zip(("rate", "state_tuples", "state_bytes", "cpu"), figures, strict=True)),
            "states": State.trusted(
                ({"input": inputs[k], "indexed": state.indexed, "cpu": state.cpu} for k, state in enumerate(join.states) if state.kept), STATE_FIELDS
            ),
            "pipelines": [_pipeline(model, inputs, k, pipeline.probes) for k, pipeline in enumerate(join.pipelines) if pipeline.probes],
        }
        operators += Operator.trusted([fields], OPERATOR_FIELDS)
    return operators


def _pipeline(model: CostModel, inputs: list[str], k: int, priced: Sequence[PricedProbe]) -> Pipeline:
    """One pipeline on the wire."""
    step = stepping(model.costs, 1)  # what each of its probes costs beside its tuples
    fields = priced.fields() if isinstance(priced, WideProbes) else ((*probe[:5], list(probe.predicates), probe.asked) for probe in priced)
    probes = [
        {
            "target": inputs[target],
            "algorithm": Algorithm.LOOKUP if asked else Algorithm.HASH if hashed else Algorithm.NESTED_LOOP,
            "predicates": predicates,
            "rate_in": rate_in,
            "rate_out": rate_out,
            "cpu": cpu + step,
        }
        for target, hashed, rate_in, rate_out, cpu, predicates, asked in fields
    ]
    # Only a sum of figures that all fit a double is finite; where it is not, each is looked at.
    sum_of_all = (
        priced.sum_of_all() if isinstance(priced, WideProbes) else sum([probe["rate_in"] + probe["rate_out"] + probe["cpu"] for probe in probes])
    )
    if not (math.isfinite(sum_of_all) or all(math.isfinite(probe[figure]) for probe in probes for figure in ("rate_in", "rate_out", "cpu"))):
        raise model.out_of_range()
    return Pipeline.trusted([{"input": inputs[k], "probes": Probe.trusted(probes, PROBE_FIELDS)}], PIPELINE_FIELDS)[0]


def gap_of(problem: Problem, value: float, bound: float | None) -> float | None:
    """(value − bound) / value; for max_headroom, whose bound is above the value, (bound − value) / bound."""
    return gap_between(value, bound, problem.objective is Objective.MAX_HEADROOM)


def shortfall_of(problem: Problem, found: Found) -> Shortfall:
    """What it would take for a plan to fit: exact where the search proved it, otherwise the best among the plans it found."""
    if (exact := found.lacking) is not None:
        return Shortfall(
            min_cpu=exact.min_cpu,
            min_memory_bytes=exact.min_memory_bytes,
            cpu_at_memory_cap=exact.cpu_at_memory_cap,
            memory_bytes_at_cpu_cap=exact.memory_bytes_at_cpu_cap,
            rate_scale=exact.rate_scale,
        )
    caps, points = problem.caps, (*found.points, found.best)
    in_memory = [point.cpu for point in points if point.memory_bytes <= caps.memory_bytes]
    in_cpu = [point.memory_bytes for point in points if point.cpu <= caps.cpu]
    factors = [headroom(problem.model.price(point.tree), problem.model, caps) for point in points]
    return Shortfall(
        min_cpu=min(point.cpu for point in points),
        min_memory_bytes=min(point.memory_bytes for point in points),
        cpu_at_memory_cap=min(in_memory, default=None),
        memory_bytes_at_cpu_cap=min(in_cpu, default=None),
        rate_scale=max((factor for factor in factors if factor), default=None),
    )


def _cap(value: float) -> float | None:
    return value if math.isfinite(value) else None


def build_plan(problem: Problem, outcome: Outcome) -> Plan:
    """The plan on the wire."""
    model, caps = problem.model, problem.caps
    found, cached, relief = outcome.found, outcome.cached, outcome.relief
    shortfall = None
    if outcome.brief and not caps.admit(found.best):
        shortfall = shortfall_of(problem, outcome.tree)
    elif relief is not None and not caps.admit(found.best):
        shortfall = shortfall_of(problem, outcome.tree).model_copy(update={"windows": list(relief.windows), "output_rate": relief.output_rate})
    priced = model.price(found.best.tree)
    operators = operators_of(problem, priced)
    caches, total = (cached.caches(), cached.total) if cached else ([], priced)
    misses = cached.misses if cached else {}
    tables = tables_of(model, priced, misses)
    intervals = [] if outcome.brief else validity(total, model, caps)
    bound = found.bound if found.proof is not Proof.NONE else None
    tree_bound = outcome.tree.bound if outcome.tree.proof is not Proof.NONE else None
    return Plan(
        format=PLAN_FORMAT,
        fingerprint=fingerprint(model.graph.names, operators, caches, tables),
        qualified=caps.admit(found.best),
        proof=found.proof,
        termination=outcome.termination,
        bound=bound,
        gap=gap_of(problem, value_of(problem, found.best, cached), bound),
        tree_proof=outcome.tree.proof,
        tree_bound=tree_bound,
        query=normalised(problem.asked, model.graph),
        resources=Resources(cpu=_cap(caps.cpu), memory_bytes=_cap(caps.memory_bytes)),
        costs=model.costs,
        objective=problem.objective,
        cost=Cost(cpu=total.cpu, memory_bytes=total.memory_bytes, memory_tuples=priced.memory_tuples, output_rate=priced.output_rate),
        headroom=headroom(total, model, caps),
        operators=operators,
        tables=tables,
        caches=caches,
        allocation=relief.allocation if relief else None,
        shortfall=shortfall,
        validity=Validity.trusted(({"statistic": name, "low": low, "high": high} for name, low, high in intervals), VALIDITY_FIELDS),
        explanation=explain(problem, outcome, total, shortfall) + (cached.sentences(outcome.tree.best.cpu) if cached else []),
        warnings=([BRIEF] if outcome.brief else []) + warnings_of(problem, priced, tables),
    )
