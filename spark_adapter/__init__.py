"""Plans on Spark: `compile(plan, bindings, spark)` checks everything and returns a pipeline to start.

Workers import this package too, and they have neither pydantic nor a reason to read it: so nothing is imported here
until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from models.bindings import Bindings
    from models.plan import Plan
    from spark_adapter.pipeline import Pipeline

__all__ = ["ENGINES", "compile"]

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
