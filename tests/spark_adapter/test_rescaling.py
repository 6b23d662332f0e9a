"""A pipeline that is started again with another number of cells: every row once, states where they belong, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.commands.main import main
from spark_adapter import rescaling
from spark_adapter.checkpoint import Folder
from spark_adapter.errors import CheckpointError, EngineError
from spark_adapter.pipeline import Pipeline
from spark_adapter.rescaling import Cells
from spark_adapter.stem.program import META, MODULES
from spark_adapter.stem.relayout import placed
from spark_adapter.stem.shelf import from_file
from spark_adapter.stem.state import Notes, expanded
from tests.spark_adapter.nested_loop import Row
from tests.spark_adapter.plans import bindings_of, make_plan, make_query
from tests.spark_adapter.runs import SCHEMA, Job, generated, ids, run, started, true_ids

pytestmark = pytest.mark.spark

QUERY = make_query({"a": 9, "b": 6, "c": 12}, ["a.x = b.x", "b.y = c.y"])
PLAN = make_plan(QUERY, [["a", "b"], "c"])
FLAT = make_plan(QUERY, ["a", "b", "c"])
ROWS = generated(QUERY, 120, seed=5, values=12)


def more(folder: Path, first: int, last: int) -> None:
    """So many rows of every stream as a file of its own."""
    for name, listed in ROWS.items():
        (folder / name).mkdir(exist_ok=True)
        lines = [json.dumps({**row, "ts": row["ts"].isoformat()}) + "\n" for row in listed[first:last]]
        # A pipeline may be looking: the file is complete when it gets its name.
        draft = folder / name / f".{first}"
        draft.write_text("".join(lines))
        draft.rename(folder / name / f"{first}.json")


def so_far(last: int) -> Mapping[str, Sequence[Row]]:
    return {name: listed[:last] for name, listed in ROWS.items()}


def started_with(spark: SparkSession, folder: Path, cells: int | None) -> Pipeline:
    return run(spark, Job(PLAN, folder, cells, more={"watermark": "3 seconds"}))


def held(spark: SparkSession, folder: Path) -> Cells:
    """The cells of the manifest, after a look at where every row of the streams' states lies."""
    manifest = json.loads((folder / "checkpoint" / "watersmeet.json").read_text())
    assert "rescaling" not in manifest
    cells = Cells.read(manifest["layout"])
    numbers = {key: cell for cell, key in enumerate(cells.keys)}
    states = spark.read.format("statestore").option("stateVarName", MODULES).load(str(folder / "checkpoint"))
    values = {(row["key"]["cell"], row["user_map_key"]["key"]): bytes(row["user_map_value"]["value"]) for row in states.collect()}
    for key in {key for key, _ in values}:
        for piece in Notes.read(values[key, META]).pieces:
            rows = from_file(expanded(values[key, piece.name]))
            if "+" not in piece.module:
                assert set(numbers[key] - placed(rows, piece.module, cells.grid)) <= set(cells.grid.offsets(piece.module))
    return cells


def test_two_cells_become_four_and_three_in_mid_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Grids by other attributes each time, a kept subresult, rows of before that meet rows of after; without a number nothing changes."""
    for last, cells, expected in ((30, 2, 2), (60, 4, 4), (90, 3, 3), (120, None, 3)):
        more(tmp_path, last - 30, last)
        if last == 90:
            assert by_command(tmp_path, "--cells", "3") == 0
            assert "the states lie in 4 cells; they are laid out anew for 3 before the first batch" in capsys.readouterr().err
        else:
            started_with(spark, tmp_path, cells)
        assert ids(QUERY, tmp_path) == true_ids(QUERY, so_far(last))
        found = held(spark, tmp_path)
        assert (found.grid.cells, found.partitions) == (expected, expected)


def by_command(folder: Path, *options: str) -> int:
    (folder / "plan.json").write_text(PLAN.model_dump_json(by_alias=True))
    bindings = bindings_of(folder, dict.fromkeys("abc", SCHEMA), watermark="3 seconds")
    (folder / "bindings.json").write_text(bindings.model_dump_json(by_alias=True))
    return main(["run", str(folder / "plan.json"), str(folder / "bindings.json"), *options])


@contextmanager
def broken_at(step: str) -> Iterator[None]:
    """The power fails there."""
    with pytest.MonkeyPatch.context() as patch:
        rewrite, write = rescaling._rewrite, Folder.write

        def rewriting(*given: object) -> None:
            rewrite(*given)  # type: ignore[arg-type]
            if step == "before the commit":
                raise KeyboardInterrupt

        def writing(self: Folder, name: str, text: str) -> None:
            if name.startswith("offsets/") and step == "before the batch is begun":
                raise KeyboardInterrupt
            write(self, name, text)
            if name.startswith("commits/") and step == "after the commit":
                raise KeyboardInterrupt

        patch.setattr(rescaling, "_rewrite", rewriting)
        patch.setattr(Folder, "write", writing)
        yield


BROKEN = (("before the batch is begun", 4, None, 4), ("before the commit", 2, 3, 3), ("after the commit", 2, None, 2))


def test_a_change_that_is_broken_off_anywhere_is_ended_by_the_next_start(spark: SparkSession, tmp_path: Path) -> None:
    """The next start asks for yet another number of cells, or for none."""
    more(tmp_path, 0, 40)
    started_with(spark, tmp_path, 2)
    last = 40
    for step, wanted, then, expected in BROKEN:
        with broken_at(step), pytest.raises(KeyboardInterrupt):
            started_with(spark, tmp_path, wanted)
        last += 20
        more(tmp_path, last - 20, last)
        started_with(spark, tmp_path, then)
        assert ids(QUERY, tmp_path) == true_ids(QUERY, so_far(last)), step
        assert held(spark, tmp_path).grid.cells == expected, step


def test_a_batch_that_was_begun_is_worked_off_by_the_cells_it_was_begun_with(spark: SparkSession, tmp_path: Path) -> None:
    """Killed after the batch was begun: its rows are on their way to the old cells."""
    more(tmp_path, 0, 60)
    started_with(spark, tmp_path, 2)
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    more(tmp_path, 60, 120)
    started_with(spark, tmp_path, 4)
    assert ids(QUERY, tmp_path) == true_ids(QUERY, ROWS)
    assert held(spark, tmp_path).grid.cells == 4


def test_a_plan_that_took_over_while_it_ran_goes_on_in_other_cells(spark: SparkSession, tmp_path: Path) -> None:
    """With its subresult, though the start names the plan of before."""
    more(tmp_path, 0, 40)
    bound = {"watermark": "3 seconds"}
    pipeline = started(spark, Job(FLAT, tmp_path, 2, more=bound | {"trigger": {}}))
    pipeline._running().processAllAvailable()
    pipeline.change(PLAN)
    more(tmp_path, 40, 80)
    pipeline._running().processAllAvailable()
    pipeline.stop()
    more(tmp_path, 80, 120)
    after = run(spark, Job(FLAT, tmp_path, 3, more=bound))
    assert after.plan == PLAN
    assert ["a", "b"] in [state["streams"] for state in after.progress.statistics["states"]]
    assert ids(QUERY, tmp_path) == true_ids(QUERY, ROWS)
    assert held(spark, tmp_path).grid.cells == 3


def test_what_goes_wrong_is_said_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    more(tmp_path, 0, 60)
    started_with(spark, tmp_path, 2)
    schema = next((tmp_path / "checkpoint" / "state" / "0" / "_stateSchema" / "default").iterdir())
    aside = schema.rename(tmp_path / "aside")
    with pytest.raises(CheckpointError, match=r"could not be laid out for 4 cells: .*Nothing is lost; the next start goes on with it"):
        started_with(spark, tmp_path, 4)
    aside.rename(schema)
    more(tmp_path, 60, 120)
    started_with(spark, tmp_path, None)
    assert ids(QUERY, tmp_path) == true_ids(QUERY, ROWS)
    assert held(spark, tmp_path).grid.cells == 4


def test_copies_count_against_the_cap_on_memory(spark: SparkSession, tmp_path: Path) -> None:
    more(tmp_path, 0, 20)
    document = PLAN.model_dump(mode="json", by_alias=True)
    document["cost"]["memory_bytes"], document["resources"]["memory_bytes"] = 1000.0, 1100.0
    plan = type(PLAN).model_validate(document)
    with pytest.raises(EngineError, match=r"in 4 cells copies make 1000 B of states 1\.\d KiB, above the cap of 1\.1 KiB; 1 would fit"):
        run(spark, Job(plan, tmp_path, 4))
    assert run(spark, Job(plan, tmp_path)).cells == 1
