"""Four streams in a chain whose selective predicate moves from one end to the other at half-time, and the answer by SQL."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from models.bindings import Bindings
from models.request import PlanRequest
from tests.spark_adapter.cells import SECOND
from tests.spark_adapter.in_process import Arrivals, Stretch, arrivals, cut

__all__ = ["EPOCH", "Drift", "found"]

EPOCH = 10**6 * SECOND  # some days after 1970, so that a watermark of 0 means that there is none
PREDICATES = [("a.x", "b.x"), ("b.y", "c.y"), ("c.z", "d.z")]


@dataclass(frozen=True)
class Drift:
    """Every stream has `rate` rows a second for twice `half` seconds; windows are `window` seconds long."""

    rate: float
    window: float
    half: float
    batch: float
    """Seconds of event time."""
    partners: tuple[float, float, float]
    """How many rows of the next stream's window a row finds, along the chain, in the first half; in the second half from the other end."""
    first: float | None = None
    """Seconds of the first half, where it is shorter."""

    @property
    def turn(self) -> float:
        """Seconds after which the second half begins."""
        return self.half if self.first is None else self.first

    def _values(self, second: bool) -> dict[str, dict[str, int]]:
        found = self.partners[::-1] if second else self.partners
        x, y, z = (max(1, round(self.rate * self.window / each)) for each in found)
        return {"a": {"x": x}, "b": {"x": x, "y": y}, "c": {"y": y, "z": z}, "d": {"z": z}}

    def request(self, second: bool, **options: Any) -> PlanRequest:
        """What describes one half exactly."""
        streams = [
            {"name": name, "rate": self.rate, "window": {"seconds": self.window}, "distinct": values} for name, values in self._values(second).items()
        ]
        predicates = [{"left": left, "right": right} for left, right in PREDICATES]
        return PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}, "options": options})

    def rows(self) -> dict[str, pl.DataFrame]:
        first, second = self._values(False), self._values(True)
        return arrivals(
            {name: [Stretch(self.turn, self.rate, first[name]), Stretch(self.half, self.rate, second[name])] for name in "abcd"}, start=EPOCH
        )

    def batches(self, rows: Arrivals) -> list[tuple[dict[str, pl.DataFrame], int]]:
        return cut(rows, self.batch, EPOCH)

    def second_half(self, line: Mapping[str, Any]) -> bool:
        """Whether a line of the statistics is of a batch in the second half."""
        reached = max((stream["last"] for stream in line["streams"] if stream["last"] is not None), default=0)
        return bool(reached >= EPOCH + self.turn * SECOND)

    def write(self, folder: Path, rows: Arrivals) -> None:
        """A Parquet file per stream and batch; Spark takes files by their modification times."""
        for n, (batch, _) in enumerate(self.batches(rows)):
            self.write_batch(folder, n, batch)

    def write_batch(self, folder: Path, n: int, batch: Arrivals) -> None:
        """All streams' files within a moment, so that a batch finds all or none."""
        drafts = []
        for name, frame in batch.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            draft = folder / name / f".{n:05}.draft"
            plain = {column: column.split(".")[1] for column in frame.columns if "." in column}
            times = pl.from_epoch("ts", "us").dt.replace_time_zone("UTC")
            frame.rename(plain | {f"{name}/0": "id"}).drop("h").with_columns(times).write_parquet(draft)
            os.utime(draft, (1_000_000_000 + n, 1_000_000_000 + n))
            drafts.append(draft)
        for draft in drafts:
            draft.rename(draft.with_name(f"{n:05}.parquet"))

    def bindings(self, folder: Path, out: Path, **more: Any) -> Bindings:
        streams = {
            name: {
                "source": {
                    "format": "parquet",
                    "options": {"path": str(folder / name), "maxFilesPerTrigger": "1"},
                    "schema": ", ".join(["ts TIMESTAMP", *(f"{attribute} BIGINT" for attribute in values), "id BIGINT"]),
                },
                "event_time": "ts",
            }
            for name, values in self._values(False).items()
        }
        document = {
            "streams": streams,
            "select": [f"{name}.id AS {name}" for name in "abcd"],
            "sink": {"format": "parquet", "options": {"path": str(out / "out")}},
            "checkpoint": str(out / "checkpoint"),
            "trigger": {"available_now": True},
        }
        return Bindings.model_validate(document | more)

    def answer(self, rows: Arrivals) -> pl.DataFrame:
        """All results by their ids, in order, by another program."""
        names = list("abcd")
        with duckdb.connect() as database:
            for name, frame in rows.items():
                database.register(name, frame.rename({column: column.replace(".", "_").replace("/", "_") for column in frame.columns}).to_arrow())
            equal = " AND ".join(f"{left.replace('.', f'.{left[0]}_')} = {right.replace('.', f'.{right[0]}_')}" for left, right in PREDICATES)
            within = " AND ".join(f"abs({one}.ts - {other}.ts) <= {round(self.window * SECOND)}" for one, other in itertools.combinations(names, 2))
            columns = ", ".join(f"{name}.{name}_0 AS {name}" for name in names)
            rows_found = database.execute(f"SELECT {columns} FROM a, b, c, d WHERE {equal} AND {within}").fetchnumpy()
        return pl.DataFrame({name: rows_found[name] for name in names}, schema=dict.fromkeys(names, pl.Int64)).sort(names)


def found(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Results of an operator in this process, as the answer has them."""
    together = pl.concat(list(frames))
    together.columns = [column.split("/")[0] for column in together.columns]
    return together.select("a", "b", "c", "d").sort("a", "b", "c", "d")
