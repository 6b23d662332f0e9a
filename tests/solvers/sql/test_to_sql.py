"""SQL out, by its text: what a plan with tables is written as, and the one sentence where it cannot be. Its rows are compared on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from app.commands.main import main
from models.plan import Plan
from models.request import PlanRequest
from models.sql import SqlMeaning, SqlRequest
from solvers.common.errors import MethodError, SqlError
from solvers.from_sql import from_sql
from solvers.planner import plan
from solvers.to_sql import to_sql

TWO_STREAMS = """SELECT o.id, c.email FROM orders o
JOIN payments p ON p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 20 SECONDS
JOIN customers c ON c.id = o.customer AND c.ts <= o.ts AND c.email IS NOT NULL"""
KEPT = [{"kind": "scan"}]
ASKED = [{"kind": "index", "bound": ["id"], "cpu": 2e-5}]


def meaning_of(access: list[dict[str, Any]], sql: str = TWO_STREAMS) -> SqlMeaning:
    streams = {"o": {"rate": 20, "event_time": "ts"}, "p": {"rate": 10}} if "payments" in sql else {"o": {"rate": 20, "event_time": "ts"}}
    tables = {"c": {"rows": 60, "access": access}}
    return from_sql(SqlRequest.model_validate({"sql": sql, "statistics": {"streams": streams, "tables": tables}}))


def planned(meaning: SqlMeaning) -> Plan:
    request = meaning.request.model_dump(mode="json")
    request["options"]["method"] = "bjtree"
    return plan(PlanRequest.model_validate(request))


def joins_of(sql: str) -> list[tuple[set[str], str]]:
    """Of each join in the text, the streams and tables below it and what it is on."""
    found = []
    for select in sqlglot.parse_one(sql, read="spark").find_all(exp.Select):
        for join in select.args.get("joins") or ():
            aliases = [one for part in (select.args["from_"], join) for one in part.find_all(exp.Alias)]
            below = {one.alias for one in aliases if isinstance(one.this, exp.Struct)}
            found.append((below, join.args["on"].sql("spark")))
    return found


def test_tables_are_joined_in_the_plans_order_and_have_no_time() -> None:
    meaning = meaning_of(KEPT)
    made = planned(meaning)
    written = to_sql(made, meaning.bindings)
    assert "c@ts" not in written and "FROM customers" in written and "NOT email IS NULL" in written
    assert sorted(sorted(names) for names, _ in joins_of(written)) == sorted(operator.streams for operator in made.operators)
    on = {frozenset(names): text for names, text in joins_of(written)}
    with_table = [text for text in on.values() if "c.id = o.customer" in text]
    assert len(with_table) == 1 and "c.ts <= `o@ts`" in with_table[0]
    streams = [text for text in on.values() if "p.order_id = o.id" in text]
    assert len(streams) == 1 and "`p@ts` <= `o@ts` + INTERVAL '20' SECOND" in streams[0]


def test_a_table_that_nothing_compares_is_joined_on_nothing() -> None:
    meaning = meaning_of(KEPT, "SELECT o.id, c.email FROM orders o CROSS JOIN customers c")
    assert [text for _, text in joins_of(to_sql(planned(meaning), meaning.bindings))] == ["TRUE"]


def test_a_table_that_the_plan_asks_by_key_is_refused_in_one_sentence() -> None:
    meaning = meaning_of(ASKED)
    with pytest.raises(MethodError, match="the plan asks c by key, which a join in SQL cannot: leave its index out"):
        to_sql(planned(meaning), meaning.bindings)


def test_flink_has_no_join_with_a_table_that_lets_go_of_rows() -> None:
    meaning = meaning_of(KEPT)
    with pytest.raises(MethodError, match=r"a plain join with a table \(c\) keeps every row for ever in Flink"):
        to_sql(planned(meaning), meaning.bindings, "flink")


def test_a_table_without_a_binding_is_named() -> None:
    meaning = meaning_of(KEPT)
    with pytest.raises(SqlError) as refused:
        to_sql(planned(meaning), meaning.bindings.model_copy(update={"tables": {}}))
    assert refused.value.errors == [("/tables", "there is no binding for c; every table of the plan needs one")]


def test_the_command_takes_a_query_or_the_bindings_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meaning = meaning_of(KEPT)
    plan_file, stats, query, bindings = (tmp_path / name for name in ("plan.json", "stats.json", "query.sql", "bindings.json"))
    plan_file.write_text(planned(meaning).model_dump_json())
    stats.write_text(json.dumps({"streams": {"o": {"event_time": "ts"}}, "tables": {"c": {"rows": 60}}}))
    query.write_text(TWO_STREAMS)
    assert main(["export", str(plan_file), str(query), "--sql", "--stats", str(stats)]) == 0
    assert capsys.readouterr().out == to_sql(planned(meaning), meaning.bindings)
    document = meaning.bindings.model_dump(mode="json") | {"checkpoint": "anywhere"}
    for stream in document["streams"].values():
        stream["source"] = {"format": "json"}
    for table in document["tables"].values():
        table["scan"] = {"format": "parquet"}
        del table["table"]  # a run reads files, not a table of Spark's: SQL then calls it as the plan does
    bindings.write_text(json.dumps(document))
    assert main(["export", str(plan_file), str(bindings), "--sql"]) == 0
    assert capsys.readouterr().out == to_sql(planned(meaning), meaning.bindings).replace("FROM customers", "FROM c")
