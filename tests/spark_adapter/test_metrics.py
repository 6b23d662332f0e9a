"""A run's figures are a text that Prometheus can read."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from spark_adapter.metrics import metrics_text
from spark_adapter.stem.statistics import Measured
from tests.spark_adapter.cells import Cells, steady
from tests.spark_adapter.plans import make_plan, make_query


def test_the_text_has_the_figures_of_the_run() -> None:
    query = make_query({"a": 5, "b": 5}, ["a.x = b.x"])
    cells = Cells(make_plan(query, ["a", "b"]))
    measured = Measured(cells.plan.query)
    planned = cells.plan.cost.model_copy(update={"memory_bytes": 1000.0, "memory_tuples": 10.0})
    made = 0
    for batch, watermark in steady(query, seconds=6, per_second=10, values=3):
        made += cells.work_off(batch, watermark).total()
        measured.add([cells.outcomes[-1].statistics])
    families = text_string_to_metric_families(metrics_text(measured.summary(), 1.5, planned, {"a": 7}))
    found = {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}
    assert found["watersmeet_results_total",] == made > 0
    assert found["watersmeet_stream_rows_total", "a"] == 60
    assert found["watersmeet_stream_bad_total", "a"] == 7
    assert found["watersmeet_state_rows", "b"] == cells.outcomes[-1].statistics["states"]["b"][0]
    assert found["watersmeet_store_written_bytes_total",] > 0
    assert (found["watersmeet_batch_seconds",], found["watersmeet_planned_bytes",], found["watersmeet_planned_rows",]) == (1.5, 1000.0, 10.0)
    assert found["watersmeet_watermark_held_seconds", "a"] == 0.0
    assert found["watersmeet_stream_idle_late_total", "b"] == 0
