"""From documents to a pipeline: read, check, lay out, build. Nothing is started here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession

from models.bindings import Bindings, Routing
from models.plan import Plan
from spark_adapter import ENGINES
from spark_adapter.changes import Changes
from spark_adapter.checkpoint import Folder, check_layout, differences, read_manifest, write_manifest
from spark_adapter.control import Control
from spark_adapter.decisions import Decisions
from spark_adapter.documents import check_tree, read_bindings, read_plan
from spark_adapter.errors import BindingError, ChangeError, EngineError
from spark_adapter.expressions import SPARK_ERRORS
from spark_adapter.layout import layout_of
from spark_adapter.native import native
from spark_adapter.pipeline import Built, Measuring, Pipeline, applied, changeable
from spark_adapter.session import send_code
from spark_adapter.shedding import check_shed
from spark_adapter.sources import read_streams
from spark_adapter.stem.engine import OBSERVED, cells_layout, grid_from, parallelism, programmed, settings, stem
from spark_adapter.stem.program import Program
from spark_adapter.stem.shares import copied
from spark_adapter.stem.statistics import Measured

__all__ = ["compiled"]

PARTITIONS = "spark.sql.shuffle.partitions"


def compiled(
    plan: Plan | Mapping[str, Any], bindings: Bindings | Mapping[str, Any], spark: SparkSession, engine: str, cells: int | None, shed: bool
) -> Pipeline:
    if engine not in ENGINES:
        raise EngineError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if cells is not None and cells < 1:
        raise EngineError(f"cells must be at least 1, got {cells}")
    checked = plan if isinstance(plan, Plan) else read_plan(plan)
    bound = bindings if isinstance(bindings, Bindings) else read_bindings(bindings)
    check_tree(checked)
    check_shed(checked, shed)
    # The bindings' settings decide what names and expressions mean, so they apply while the plan is checked as well.
    with applied(spark, changeable(bound, spark)):
        return _built(checked, bound, spark, engine, cells, shed)


def _built(checked: Plan, bound: Bindings, spark: SparkSession, engine: str, cells: int | None, shed: bool) -> Pipeline:
    streams = read_streams(checked, bound, spark)
    folder = Folder(spark, bound.checkpoint)
    manifest = read_manifest(folder)
    if engine == "native":
        return _native(checked, bound, spark, streams, folder, manifest)
    known = manifest["layout"] if manifest is not None and manifest["engine"] == engine else None
    grid = grid_from(checked, cells or parallelism(spark), known)
    partitions = known["partitions"] if known is not None else _partitions(bound, grid.cells)
    kept = layout_of(checked, bound, streams, spark) | cells_layout(grid, partitions)
    if manifest is not None:
        check_layout(manifest, engine, kept)
    send_code(spark)
    copies = f"watersmeet-{uuid4().hex}"
    program = programmed(checked, bound, streams, copies)

    def permitted(plan: Plan) -> Program:
        """The program of a plan that takes over while this one runs."""
        check_tree(plan)
        check_shed(plan, shed)
        _check_query(plan, bound, streams, spark, kept)
        return programmed(plan, bound, streams, copies)

    control = Control(spark, bound.checkpoint)
    control.make()
    changes = Changes(control, Decisions(folder), checked, None if manifest is None else manifest["given"], permitted)
    measured = Measured(program)
    built = Built(
        stem(program, checked, bound, streams, grid, partitions, control.path),
        remember=lambda: write_manifest(folder, engine, checked.fingerprint, kept, changes.given),
        changes=changes,
        settings=settings(streams, partitions),
        measuring=Measuring(OBSERVED, measured.add, measured.summary),
        tidy=lambda: _remove_copies(spark, copies),
        cells=grid.cells,
        copied=copied(checked, grid),
    )
    return Pipeline(checked, bound, spark, built)


def _check_query(plan: Plan, bindings: Bindings, streams: Mapping[str, DataFrame], spark: SparkSession, kept: Mapping[str, Any]) -> None:
    """Refuse a plan that is not for the query whose rows the states hold. The bindings are the pipeline's, so they cannot differ."""
    names = [stream.name for stream in plan.query.streams]
    if sorted(names) != sorted(streams):
        found = [f"the pipeline joins {', '.join(sorted(streams))}, this plan {', '.join(sorted(names))}"]
    else:
        wanted = layout_of(plan, bindings, streams, spark)
        found = differences(kept, {**kept, "streams": wanted["streams"], "predicates": wanted["predicates"]})
    if found:
        raise ChangeError([("/query", f"a running pipeline changes to plans for the same query only: {'; '.join(found)}")])


def _remove_copies(spark: SparkSession, name: str) -> None:
    """The copies of states that workers have made, on whatever machines they are. What is not reached goes when the application ends."""
    shutil.rmtree(Path(SparkFiles.getRootDirectory()) / name, ignore_errors=True)
    context = spark.sparkContext
    if context.master.startswith("local[") or context.master == "local":
        return

    def remove(_: object) -> None:
        import shutil
        from pathlib import Path

        from pyspark import SparkFiles

        shutil.rmtree(Path(SparkFiles.getRootDirectory()) / name, ignore_errors=True)

    # A few tasks per executor: Spark gives them out to those that are free.
    tasks = 4 * max(1, int(context._jsc.sc().getExecutorMemoryStatus().size()))
    with suppress(*SPARK_ERRORS):
        context.parallelize(range(tasks), tasks).foreach(remove)


def _partitions(bindings: Bindings, cells: int) -> int:
    """A partition per cell, unless the bindings say otherwise: more would be stores that hold nothing."""
    given = bindings.spark.get(PARTITIONS)
    if given is None:
        return cells
    if not given.isdecimal() or int(given) < 1:
        raise BindingError([(f"/spark/{PARTITIONS}", f"must be a whole number of at least 1, got {given!r}")])
    return int(given)


def _native(
    plan: Plan, bindings: Bindings, spark: SparkSession, streams: Mapping[str, DataFrame], folder: Folder, manifest: Mapping[str, Any] | None
) -> Pipeline:
    """Spark's joins keep their states by their place in the tree: only the same plan can go on with them."""
    if bindings.routing is Routing.ADAPTIVE:
        raise BindingError([("/routing", "engine native probes in the plan's order; for routing: adaptive use engine stem")])
    results = native(plan, bindings, streams)
    kept = layout_of(plan, bindings, streams, spark) | {"plan": plan.fingerprint}
    if manifest is not None:
        check_layout(manifest, "native", kept)
    return Pipeline(plan, bindings, spark, Built(results, remember=lambda: write_manifest(folder, "native", plan.fingerprint, kept)))
