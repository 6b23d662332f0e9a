"""Plans on Spark: `compile(plan, bindings, spark)` checks everything and returns a pipeline to start.

Workers import this package too, and they have neither pydantic nor a reason to read it: so nothing is imported here
until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from models.bindings import Bindings
    from models.plan import Plan
    from spark_adapter.pipeline import Pipeline

__all__ = ["ENGINES", "compile", "join"]

ENGINES = ("stem", "native")


def compile(
    plan: Plan | Mapping[str, Any],
    bindings: Bindings | Mapping[str, Any],
    spark: SparkSession,
    engine: str = "stem",
    cells: int | None = None,
    shed: bool = False,
) -> Pipeline:
    """A pipeline that runs `plan` over what `bindings` name. Nothing starts; everything that can be checked is.

    `engine` is `stem`, which runs every plan as one stateful operator, or `native`, Spark's own stream-stream joins for
    plans of binary joins. `cells` is how many cells stem spreads its states over; by default what the cluster runs at once.
    `shed` is the user's word that a plan may run which sheds load or does not fit its caps.

    Raises PlanError, SheddingError, BindingError, EngineError or CheckpointError, with every fault found.
    """
    from spark_adapter.compilation import compiled

    return compiled(plan, bindings, spark, engine, cells, shed)


def join(
    frames: Mapping[str, DataFrame],
    on: Sequence[str],
    within: Mapping[str, str | float],
    event_time: str | Mapping[str, str] = "ts",
    plan: Plan | Mapping[str, Any] | None = None,
    **asking: Any,
) -> DataFrame:
    """The join of streaming DataFrames as one streaming DataFrame, with a struct column per frame: write it with any `writeStream`.

        join({"bids": bids, "auctions": auctions}, on=["bids.auction = auctions.id"], within={"bids": "1 minute", "auctions": 300})

    Frames stay as they are, with the watermarks that they have on their event times. `on` compares columns of two frames (=, <, <=, >, >=, !=),
    `within` says how long a row waits for partners. Without a `plan` one is made (see `spark_adapter.dataframes.Asking` for what may be
    said of that: `statistics`, `batches`, `resources`, `url`, `cells`). States are checked when the query starts again from its checkpoint.

    Raises BindingError, PlanError or EngineError, with every fault found.
    """
    from spark_adapter.dataframes import Asking, joined

    return joined(frames, on, within, event_time, plan, Asking(**asking))
