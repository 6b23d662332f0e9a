"""A region of a join tree, solved exactly, compiled: the best way to join a handful of blocks.

Problem: given blocks B_1..B_m (disjoint sets of streams, each joined below already), every trade-off between CPU and
memory of the join trees that have them as leaves. Method: sizes and rates do not depend on shape, so for each connected
union of blocks it is enough to keep the staircase of (CPU, bytes) that no other sub-tree beats (dynamic programming over
unions; all partitions of a union into connected parts, depth first, with the parts' least costs as a bound). Guarantee:
exact; a staircase longer than MAX_STEPS is cut, and said so, but keeps its cheapest step.
Complexity: O(Bell(m + 1) · 2^m · m) at worst, far less on sparse graphs. Costs are excess, as in `Ledger`.

This is `staircases` for few blocks: no tables, seeds or bounds to make first, which for ten blocks take longer than all of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, compiled, making
from solvers.jtree.compiled.cost import Weights, weighted
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.staircase import Steps, dominated, insert, is_full, room_for
from solvers.jtree.compiled.unions import OrderScratch, Unions, join_of_unions, order_scratch
from solvers.jtree.search import sorted_inputs

__all__ = ["Solution", "solve_region"]

MAX_STEPS = 48  # steps of one staircase; a region's are rarely longer
STEPS, CUT = 0, 1  # entries of Here.counts


class Region(NamedTuple):
    """What is asked: the unions of blocks, bytes of a tuple of each block, cost constants above the base and the base itself, and limits."""

    unions: Unions
    tuple_bytes: Floats
    weights: Weights
    base: float
    cpu_limit: float
    memory_limit: float
    max_steps: int


class Entries(NamedTuple):
    """The staircases of all unions so far; entry k < m is block k. Those of union u are first[u] to before end[u]."""

    cpu: Floats
    memory: Floats
    parts: Ints
    """The entries that are joined."""
    number: Ints
    """How many."""
    first: Ints
    end: Ints


class Here(NamedTuple):
    """The union at hand: its staircase, a partial partition of it, and room to price a join."""

    steps: Steps
    parts: Ints
    """By the rows of the steps: the entries that are joined, with their number first."""
    chosen: Ints
    left: Ints
    least: Floats
    held: Floats
    pick: Ints
    orders: OrderScratch
    counts: Ints
    """How many steps, and whether a step was ever dropped for want of room."""


@making
def no_entries(m: int) -> Entries:
    """The blocks alone, and room for more."""
    room, count = m + 64, 1 << m
    first, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for k in range(m):
        first[1 << k], end[1 << k] = k, k + 1
    return Entries(np.zeros(room), np.zeros(room), np.zeros((room, m), np.int64), np.zeros(room, np.int64), first, end)


@making
def twice_the_room(entries: Entries) -> Entries:
    cpu, memory, parts, number, first, end = entries
    wider = np.zeros((2 * cpu.size, parts.shape[1]), np.int64)
    wider[: cpu.size] = parts
    longer = np.append(number, np.zeros(cpu.size, np.int64))
    return Entries(np.append(cpu, np.zeros(cpu.size)), np.append(memory, np.zeros(cpu.size)), wider, longer, first, end)


@making
def room_at_hand(m: int, max_steps: int) -> Here:
    ints, floats = np.zeros((3, m + 1), np.int64), np.zeros((2, m + 1))
    parts = np.zeros((max_steps + 1, m + 1), np.int64)
    return Here(room_for(max_steps), parts, ints[0], ints[1], floats[0], floats[1], ints[2], order_scratch(m), np.zeros(2, np.int64))


@compiled
def keeping_union(region: Region, target: int) -> tuple[float, float]:
    """What a union adds in CPU and bytes where it is the output of an inner join; nothing for that of all blocks."""
    unions, tuple_bytes = region.unions, region.tuple_bytes
    if target == unions.sizes.size - 1:
        return 0.0, 0.0
    weight = 0.0
    for k in range(tuple_bytes.size):
        if target >> k & 1:
            weight += tuple_bytes[k]
    size = unions.sizes[target]
    return weighted(region.weights.join + region.base, size * unions.seconds[target]), weighted(weight, size)


@compiled
def keep_step(here: Here, number: int, cpu: float, memory: float) -> None:
    """Put a join of the entries picked, which no step beats, into the staircase at hand."""
    steps, parts, counts = here.steps, here.parts, here.counts
    count = counts[STEPS]
    # Look for a row that no step has; rows that steps have are marked by their sign meanwhile.
    for k in range(count):
        parts[steps.row[k], 0] = -parts[steps.row[k], 0]
    free = 0
    while parts[free, 0] < 0:
        free += 1
    for k in range(count):
        parts[steps.row[k], 0] = -parts[steps.row[k], 0]
    parts[free, 0] = number
    for k in range(number):
        parts[free, 1 + k] = here.pick[k]
    if is_full(steps, count, cpu, memory):
        counts[CUT] = 1
    counts[STEPS] = insert(steps, count, cpu, memory, 0, free)


@compiled
def keep_union(entries: Entries, here: Here, target: int, used: int) -> int:
    """Add the staircase at hand to the entries, of which `used` are taken. Returns how many are taken then."""
    steps, parts = here.steps, here.parts
    entries.first[target] = used
    for k in range(here.counts[STEPS]):
        row = steps.row[k]
        entries.cpu[used], entries.memory[used], entries.number[used] = steps.e[k], steps.m[k], parts[row, 0]
        for part in range(entries.parts.shape[1]):
            entries.parts[used, part] = parts[row, 1 + part]
        used += 1
    entries.end[target] = used
    return used


@making
def solve(region: Region) -> tuple[Entries, bool]:
    """Every union's staircase, and whether none was cut.

    Its loops, over partitions and over choices of entries, stand in one function: apart, it took twice as long (8 to 10 blocks), for what
    numba spends on passing arrays in tuples.
    """
    unions, weights, cpu_limit, memory_limit = region.unions, region.weights, region.cpu_limit, region.memory_limit
    m, count = region.tuple_bytes.size, unions.sizes.size
    entries, here = no_entries(m), room_at_hand(m, region.max_steps)
    cpu, memory, first, end = entries.cpu, entries.memory, entries.first, entries.end
    chosen, left, least, held, pick, orders, counts = here.chosen, here.left, here.least, here.held, here.pick, here.orders, here.counts
    step_e, step_m, step_o, _ = here.steps
    used = m
    for target in range(3, count):
        if target & (target - 1) == 0 or not unions.connected[target] or unions.sizes[target] == np.inf:
            continue
        kept, kept_bytes = keeping_union(region, target)
        if kept > cpu_limit or kept_bytes > memory_limit:
            continue
        counts[STEPS] = 0
        depth = 0
        left[0], least[0], held[0], chosen[0] = target, 0.0, 0.0, 0
        while depth >= 0:
            # The part with the lowest block left: its other blocks run through all subsets, largest first.
            low = left[depth] & -left[depth]
            rest = chosen[depth] ^ low
            if chosen[depth] == 0:
                chosen[depth] = left[depth]
            elif rest == 0:
                depth -= 1
                continue
            else:
                chosen[depth] = ((rest - 1) & (left[depth] ^ low)) | low
            part = chosen[depth]
            if part == target or first[part] == end[part]:
                continue
            # A staircase rises in CPU: its first entry is the cheapest, its last the smallest.
            now, now_held = least[depth] + cpu[first[part]], held[depth] + memory[end[part] - 1]
            if now + kept > cpu_limit or now_held + kept_bytes > memory_limit:
                continue
            if counts[STEPS] and step_e[0] <= now + kept and step_m[0] <= now_held + kept_bytes:
                continue
            if left[depth] != part:
                depth += 1
                left[depth], least[depth], held[depth], chosen[depth] = left[depth - 1] ^ part, now, now_held, 0
                continue
            number = depth + 1
            own = join_of_unions(chosen, number, unions, weights, orders) + kept
            if own == np.inf:
                continue
            for k in range(number):
                pick[k] = first[chosen[k]]
            turn = 0
            while turn < number:
                total, total_held = own, kept_bytes
                for k in range(number):
                    total += cpu[pick[k]]
                    total_held += memory[pick[k]]
                if total <= cpu_limit and total_held <= memory_limit and not dominated(step_e, step_m, step_o, counts[STEPS], total, total_held, 0):
                    keep_step(here, number, total, total_held)
                turn = 0
                while turn < number:
                    pick[turn] += 1
                    if pick[turn] < end[chosen[turn]]:
                        break
                    pick[turn] = first[chosen[turn]]
                    turn += 1
        while used + counts[STEPS] > cpu.size:
            entries = twice_the_room(entries)
            cpu, memory = entries.cpu, entries.memory
        used = keep_union(entries, here, target, used)
    return entries, counts[CUT] == 0


@dataclass(frozen=True, slots=True)
class Solution:
    """One way to join a region: its excess, the bytes it keeps, and for each join, inputs first, the masks of its inputs."""

    excess: float
    state_bytes: float
    joins: tuple[tuple[int, ...], ...]


def solve_region(
    ledger: Ledger,
    masks: Sequence[int],
    cpu_limit: float = math.inf,
    memory_limit: float = math.inf,
    in_memory: bool = True,
    max_steps: int = MAX_STEPS,
) -> tuple[tuple[Solution, ...], bool]:
    """The staircase of the trees over these blocks within the limits of excess and bytes, by rising excess, and whether it is complete.

    Without `in_memory` bytes count for nothing, and the staircase is its cheapest step alone.
    """
    tuple_bytes = np.array([ledger.model.tuple_bytes(mask) if in_memory else 0.0 for mask in masks])
    entries, whole = solve(Region(ledger.unions(masks), tuple_bytes, ledger.weights, ledger.base, cpu_limit, memory_limit, max_steps))
    found = range(entries.first[-1], entries.end[-1])
    return tuple(Solution(float(entries.cpu[k]), float(entries.memory[k]), _joins(entries, k, masks)) for k in found), bool(whole)


def _joins(entries: Entries, entry: int, masks: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each join of an entry, inputs first, the masks of its inputs."""
    order: list[tuple[int, list[int]]] = []
    waiting = [entry]
    while waiting:
        node = waiting.pop()
        if node >= len(masks):
            parts = entries.parts[node, : entries.number[node]].tolist()
            order.append((node, parts))
            waiting.extend(parts)
    mask_of = dict(enumerate(masks))
    joins = []
    for node, parts in reversed(order):
        inputs = sorted_inputs(mask_of[part] for part in parts)
        mask_of[node] = sum(inputs)
        joins.append(inputs)
    return tuple(joins)
