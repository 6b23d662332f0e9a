"""From documents to a pipeline: read, check, lay out, build. Nothing is started here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from models.bindings import Bindings, Routing, Trigger
from models.plan import Plan
from spark_adapter import ENGINES
from spark_adapter.changes import Changes
from spark_adapter.checkpoint import Folder, check_layout, differences, read_manifest, write_manifest
from spark_adapter.control import Control
from spark_adapter.decisions import Decisions
from spark_adapter.documents import check_tree, read_bindings, read_plan
from spark_adapter.errors import BindingError, ChangeError, EngineError
from spark_adapter.expressions import SPARK_ERRORS
from spark_adapter.kafka.brokers import lost
from spark_adapter.layout import layout_of
from spark_adapter.native import native
from spark_adapter.pipeline import Built, Measuring, Pipeline, applied, changeable
from spark_adapter.progress import size
from spark_adapter.rescaling import Cells, Held, worked_off
from spark_adapter.session import PARTITIONS, in_one_process, send_code
from spark_adapter.shedding import check_shed
from spark_adapter.sources import Inputs, read_inputs
from spark_adapter.stem.engine import OBSERVED, Side, parallelism, programmed, settings, stem
from spark_adapter.stem.program import Program
from spark_adapter.stem.programming import kept_streams
from spark_adapter.stem.shares import choose_grid, copied, fits, fitting_grid
from spark_adapter.stem.statistics import Measured
from spark_adapter.tables.databases import check_tables, unbound
from spark_adapter.tables.reaching import reaches
from spark_adapter.tables.versions import Versions, check_kept

__all__ = ["compiled"]

ONE_BATCH = "1000 days"  # between two batches: there will be no second one
POLL_SECONDS = 0.1
SPREADING = 0.05  # seconds that a task which removes copies takes at least, so that no executor gets them all


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
    check_tables(checked, bound)
    inputs = read_inputs(checked, bound, spark)
    folder = Folder(spark, bound.checkpoint)
    manifest = read_manifest(folder)
    gone = list(lost(bound, spark, folder))
    if gone:
        raise BindingError(gone)
    if engine == "native":
        return _native(checked, bound, spark, inputs, folder, manifest)
    kept = layout_of(checked, bound, inputs, spark)
    if manifest is not None:
        where = {name: manifest["layout"].get(name) for name in ("grid", "partitions")}
        check_layout(manifest, engine, kept | where)  # rows may be moved, but must mean the same

    control = Control(spark, bound.checkpoint)
    control.make()
    copies = _place_of_copies(spark)

    def permitted(plan: Plan) -> Program:
        """The program of a plan that takes over while this one runs."""
        check_tree(plan)
        check_shed(plan, shed)
        _check_query(plan, bound, inputs, spark, kept)
        return programmed(plan, bound, inputs, copies)

    known = None if manifest is None else manifest.get("given")
    changes = Changes(control, Decisions(folder), checked, known, permitted, lambda before, after: check_kept(before, after, bound))

    def write(cells: dict[str, Any], change: dict[str, Any] | None) -> None:
        named = {"engine": engine, "fingerprint": checked.fingerprint, "given": changes.given}
        write_manifest(folder, named | {"layout": kept | cells, "rescaling": change})

    held = Held(folder, write, manifest)
    wanted = _wanted_cells(checked, bound, spark, cells, held.target)
    versions = Versions(spark, bound, inputs.tables, control, lambda: changes.latest)
    send_code(spark)
    side = Side(control.path, versions.sources(), reaches(checked, bound, inputs.tables, spark))
    stems = _Stems(checked, bound, spark, inputs, changes, side, versions)

    def take_over() -> None:
        windows = {stream.name: round((stream.window.seconds or 0) * 1_000_000) for stream in checked.query.streams}
        held.take_to(wanted, bound, spark, windows, lambda before: _work_off(stems.pipeline(before, _place_of_copies(spark)), folder))
        changes.begin()
        versions.begin()

    before = held.target.grid.cells if held.target is not None else wanted.grid.cells
    return stems.pipeline(wanted, copies, take_over, before)


@dataclass(frozen=True, slots=True)
class _Stems:
    """Pipelines of engine stem over one checkpoint: the one that is asked for, and where a batch was begun under other cells, that one's."""

    plan: Plan
    bindings: Bindings
    spark: SparkSession
    inputs: Inputs
    changes: Changes
    side: Side
    versions: Versions

    def pipeline(self, cells: Cells, copies: str, remember: Callable[[], None] | None = None, before: int = 1) -> Pipeline:
        """Over the states of these cells; `copies` is where workers keep theirs, `before` how many cells the checkpoint has had until now.

        Without `remember` it only works off what was begun, and reads no tables.
        """
        plan, inputs = self.plan, self.inputs
        program = programmed(plan, self.bindings, inputs, copies)
        measured = Measured(plan.query, {stream.name: stream.delay or 0 for stream in program.streams})
        built = Built(
            stem(program, plan, self.bindings, inputs, cells, self.side),
            remember=remember or (lambda: None),
            changes=self.changes,
            settings=settings(inputs.frames, cells.partitions),
            beside=None if remember is None else self.versions,
            tables=len(self.side.versions),
            measuring=Measuring(OBSERVED, measured.add, measured.summary, measured.measured),
            tidy=lambda: _remove_copies(self.spark, copies),
            cells=cells.grid.cells,
            cells_before=before,
            copied=copied(plan, cells.grid),
        )
        return Pipeline(plan, self.bindings, self.spark, built)


def _work_off(pipeline: Pipeline, folder: Folder) -> None:
    """Run the batch that was begun and not committed, and no other: the next one would begin when the trigger's time has passed."""
    pipeline.bindings = pipeline.bindings.model_copy(update={"trigger": Trigger(processing_time=ONE_BATCH)})
    pipeline.start()
    while not worked_off(folder):
        pipeline.await_termination(POLL_SECONDS)
    pipeline.stop()


def _wanted_cells(plan: Plan, bindings: Bindings, spark: SparkSession, cells: int | None, known: Cells | None) -> Cells:
    """Those of the checkpoint, unless another number of them is asked for."""
    if known is not None and cells in (None, known.grid.cells):
        return known
    grid = fitting_grid(plan, parallelism(spark)) if cells is None else choose_grid(plan.query, cells)
    if not fits(plan, grid):
        most = fitting_grid(plan, grid.cells).cells
        raise EngineError(
            f"in {grid.cells} cells copies make {size(plan.cost.memory_bytes)} of states {size(plan.cost.memory_bytes * copied(plan, grid))}, "
            f"above the cap of {size(plan.resources.memory_bytes or 0)}; {most} would fit, or plan with a higher resources.memory_bytes"
        )
    if known is not None and known.grid == grid:
        return known
    lost = [] if known is None else _not_held(plan)
    if lost:
        raise EngineError(
            f"the states cannot be laid out anew: they hold joins of {', '.join(lost)} with tables, not the rows that these are made of; "
            "use a new folder"
        )
    return Cells(grid, _partitions(bindings, grid.cells))


def _not_held(plan: Plan) -> list[str]:
    """Streams of which joins with tables are kept, and no rows: what is laid out anew is made of the streams' rows."""
    kept = kept_streams(plan)
    return [
        name for operator in plan.operators[:-1] for name in operator.streams if name not in (*kept, *(table.name for table in plan.query.tables))
    ]


def _place_of_copies(spark: SparkSession) -> str:
    """Where workers keep copies of this run's states: below their own folders for what can be lost, or here among the driver's files."""
    name = f"watersmeet-{uuid4().hex}"
    return str(Path(SparkFiles.getRootDirectory()) / name) if in_one_process(spark) else name


def _check_query(plan: Plan, bindings: Bindings, inputs: Inputs, spark: SparkSession, kept: Mapping[str, Any]) -> None:
    """Refuse a plan that is not for the query whose rows the states hold. The bindings are the pipeline's, so they cannot differ."""
    names = [relation.name for relation in plan.query.relations]
    if sorted(names) != sorted(inputs.frames):
        found = [f"the pipeline joins {', '.join(sorted(inputs.frames))}, this plan {', '.join(sorted(names))}"]
    else:
        faults = list(unbound(plan, bindings))
        if faults:
            raise ChangeError(faults)
        wanted = layout_of(plan, bindings, inputs, spark)
        found = differences(kept, {**kept, "streams": wanted["streams"], "predicates": wanted["predicates"]})
    if found:
        raise ChangeError([("/query", f"a running pipeline changes to plans for the same query only: {'; '.join(found)}")])


def _remove_copies(spark: SparkSession, name: str) -> None:
    """The copies of states that workers have made, on whatever machines they are. What is not reached goes with its executor's folders."""
    if in_one_process(spark):
        shutil.rmtree(name, ignore_errors=True)
        return
    context = spark.sparkContext

    def remove(_: object) -> None:
        import shutil
        import time

        from spark_adapter.stem.worker import local_folders

        for folder in local_folders():
            shutil.rmtree(folder / name, ignore_errors=True)
        time.sleep(SPREADING)

    # Tasks go to whoever is free: as many as run at once, and again, reach every executor.
    tasks = 2 * int(context.defaultParallelism)
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


def _native(plan: Plan, bindings: Bindings, spark: SparkSession, inputs: Inputs, folder: Folder, manifest: Mapping[str, Any] | None) -> Pipeline:
    """Spark's joins keep their states by their place in the tree: only the same plan can go on with them."""
    if bindings.routing is Routing.ADAPTIVE:
        raise BindingError([("/routing", "engine native probes in the plan's order; for routing: adaptive use engine stem")])
    results = native(plan, bindings, inputs.frames)
    kept = layout_of(plan, bindings, inputs, spark) | {"plan": plan.fingerprint}
    if manifest is not None:
        check_layout(manifest, "native", kept)
    written = {"engine": "native", "fingerprint": plan.fingerprint, "layout": kept}
    return Pipeline(plan, bindings, spark, Built(results, remember=lambda: write_manifest(folder, written)))
