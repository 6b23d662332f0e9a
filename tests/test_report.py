"""The page of evidence is what its JSON says: nothing more, nothing older, nothing by hand."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_adapter.stem.shares import choose_grid
from tests.app.serving import until
from tests.bench import report
from tests.bench.bench_caches import TABLE_2
from tests.bench.bench_stem import CHAIN, Flow, request_of, shaped
from tests.bench.bench_truth import BATCH, MEASURED, ByBatch, Measured, QueryRuns, spearman
from tests.bench.evidence import (
    AGREES,
    DIFFERS,
    IN_KIND,
    Claim,
    Figure,
    Findings,
    Kept,
    NotAtHandError,
    Part,
    Section,
    Table,
    line,
    load,
    retold,
    save,
    told,
)
from tests.bench.evidence_operator import PAIRS, Values, allocating_told, burst_told
from tests.bench.evidence_page import written
from tests.bench.evidence_paper1 import papers_claims
from tests.bench.evidence_peers import FLINKS_BEST, PLANS_ORDER, QUERIES, STEM, Ran, _row, flink_job, once, peers_told
from tests.bench.evidence_scale import placed
from tests.bench.evidence_truth import batches_told, findings, going_over
from tests.bench.operator_paper5 import held_back
from tests.bench.quoted import quotable, quotes_in, renewed, section_of, untagged
from tests.bench.redistributing import filled
from tests.bench.svg import Chart, svg_of
from tests.bench.truth_terms import steps_seen
from tests.bench.watched import BEGIN, END, FailedError, Watched, watched
from tests.spark_adapter.in_process import InProcess, Stretch, arrivals, cut

DOCS = report.ROOT / "docs"
WIDEST = 100  # characters of a row with figures alone; more is no table for a phone


def section(*parts: Part) -> Section:
    return Section("made", "A section", "About it.", parts)


def part(name: str = "one", run: Callable[[bool], Findings] | None = None) -> Part:
    def found(quick: bool) -> Findings:
        return Findings(
            [Claim("X beats M.", "it does.", AGREES), Claim("G beats X.", "it does not.", DIFFERS)],
            ["A setting."],
            [Table("Loads", ["", "M", "X"], [["D1", "1", "2"]])],
            [Figure("loads", "Loads", "point", "load", {"M": line([(1, 2.0), (2, float("nan")), (3, 4.0)])})],
            ["A note."],
            {"load": "2.5"},
        )

    return Part(name, f"Part {name}", run or found)


def test_drawing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    made = section(part())
    report.run(made, made.parts[0], True, tmp_path)
    first = written([made], tmp_path)
    assert first == written([made], tmp_path)
    assert {"evidence.md", "evidence/made-loads.svg"} == set(first)
    page = first["evidence.md"]
    assert "**Agrees.** Said: X beats M. Here: it does." in page and "**Differs.**" in page and "A note." in page
    assert "--quick --only made.one" in page and "quick run" in page
    assert "- quick runs: 1 parts, 0 minutes by the clock\n" in page


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    def absent(quick: bool) -> Findings:
        raise NotAtHandError("no such database here")

    def broken(quick: bool) -> Findings:
        raise ValueError

    made = section(part("never"), part("absent", absent), part("broken", broken))
    assert report.run(made, made.parts[1], True, tmp_path)
    assert not report.run(made, made.parts[2], True, tmp_path)
    page = written([made], tmp_path)["evidence.md"]
    assert page.count("**Not run**") == 3
    assert "no such database here" in page and "ValueError" in page
    assert re.search(r"\| +\| +\| +\| 3 \|", page)


def test_a_run_that_was_broken_off_goes_on_and_one_that_ended_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    fails = [True]

    def once(name: str) -> Callable[[bool], Findings]:
        def run(quick: bool) -> Findings:
            ran.append(name)
            if name == "two" and fails.pop():
                raise KeyboardInterrupt
            return Findings()

        return run

    made = section(part("one", once("one")), part("two", once("two")), part("three", once("three")))
    monkeypatch.setattr(report, "BUILD", tmp_path / "build")
    monkeypatch.setattr(report, "sections", lambda: [made])
    arguments = ["--quick", "--into", str(tmp_path / "out")]
    with pytest.raises(KeyboardInterrupt):
        report.main(arguments)
    assert set(load(tmp_path / "out" / "evidence", "made")) == {"one"}
    fails.append(False)
    report.main(arguments)
    assert ran == ["one", "two", "two", "three"]
    fails.append(False)
    report.main(arguments)
    assert ran[4:] == ["one", "two", "three"]
    report.main([*arguments, "--only", "made.three"])
    assert ran[7:] == ["three"]
    report.main([*arguments, "--redraw"])
    assert len(ran) == 8
    with pytest.raises(SystemExit, match="no such section"):
        report.main([*arguments, "--only", "other"])


def test_a_part_that_failed_is_run_again_and_the_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def once(name: str) -> Callable[[bool], Findings]:
        def run(quick: bool) -> Findings:
            ran.append(name)
            if ran == ["one"]:
                raise ValueError
            return Findings()

        return run

    made = section(part("one", once("one")), part("two", once("two")))
    monkeypatch.setattr(report, "BUILD", tmp_path / "build")
    monkeypatch.setattr(report, "sections", lambda: [made])
    arguments = ["--quick", "--into", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="1 parts failed"):
        report.main(arguments)
    assert ran == ["one", "two"]
    report.main(arguments)
    assert ran == ["one", "two", "one"]
    report.main(arguments)
    assert ran[3:] == ["one", "two"]


def test_what_is_kept_is_told_anew_from_its_numbers_when_the_page_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(word: str) -> Callable[[Mapping[str, Any]], Findings]:
        return lambda data: Findings(notes=[f"{word} {data['load']}"])

    made = section(Part("one", "One", lambda quick: told(said("then"), {"load": 2.5}), said("now")))
    report.run(made, made.parts[0], True, tmp_path)
    assert "then 2.5" in written([made], tmp_path)["evidence.md"]
    monkeypatch.setattr(report, "sections", lambda: [made])
    report.main(["--redraw", "--into", str(tmp_path)])
    page = written([made], tmp_path)["evidence.md"]
    assert "now 2.5" in page and "then" not in page


def test_lists_of_numbers_take_one_line_and_are_read_as_they_were(tmp_path: Path) -> None:
    data = {"pairs": [[1.0, -2e-7], [3.5, 4.0]], "text": "[\n 1\n ]", "words": ["a"], "none": []}
    kept = Kept(told(lambda data: Findings(), data), "", "quick", "", "", 0.0, 0.0, "")
    save(tmp_path, "made", {"one": kept})
    found = load(tmp_path, "made")["one"].findings
    assert found is not None and found.data == data
    assert "[1.0, -2e-07]" in (tmp_path / "made.json").read_text(encoding="utf-8")


def test_numbers_that_are_not_the_runs_own_are_said_to_be_so() -> None:
    assert told(lambda data: Findings(), {"restored": "taken from a table"}).notes == ["taken from a table"]


def test_the_committed_json_says_what_todays_code_says_of_its_numbers() -> None:
    for made in report.sections():
        kept = load(DOCS / "evidence", made.name)
        for part in made.parts:
            if part.name in kept:
                assert retold(part, kept[part.name]) == kept[part.name], f"{made.name}.{part.name}: python -m tests.bench.report --redraw"


def test_pictures_adapt_to_dark_pages_and_are_well_formed() -> None:
    chart = Chart("A < B", "x", "y", {"a & b": [(1.0, 2.0), (10.0, 200.0)], "none": []}, log=True, diagonal=True)
    text = svg_of(chart)
    root = ElementTree.fromstring(text)
    assert root.get("viewBox") and root.get("width") is None
    assert "prefers-color-scheme: dark" in text
    assert svg_of(Chart("empty", "x", "y", {}))


def test_numbers_at_the_axis_fit_beside_it() -> None:
    text = svg_of(Chart("large", "x", "y", {"a": [(0.0, 0.0), (1.0, 4_000_000.0)]}))
    written = [node.text or "" for node in ElementTree.fromstring(text).iter() if node.tag.endswith("text")]
    assert "4M" in written and max(len(word) for word in written if word[:1].isdigit()) <= 6


def test_the_committed_page_is_what_its_json_says() -> None:
    for name, text in written(report.sections(), DOCS).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"docs/{name} is not what its JSON says: python -m tests.bench.report --redraw"
    known = {section.name for section in report.sections()}
    assert {path.stem for path in (DOCS / "evidence").glob("*.json")} <= known


def test_every_verdict_is_one_of_three_and_every_part_of_the_json_exists() -> None:
    for made in report.sections():
        kept = load(DOCS / "evidence", made.name)
        assert set(kept) <= {part.name for part in made.parts}
        for found in kept.values():
            assert all(claim.verdict in (AGREES, IN_KIND, DIFFERS) for claim in (found.findings.claims if found.findings else ()))


def test_figures_that_documents_quote_are_the_reports() -> None:
    known = quotable(DOCS / "evidence")
    quoted = {document.name: quotes_in(document.read_text(encoding="utf-8")) for document in (report.ROOT / "README.md", *DOCS.glob("*.md"))}
    assert len(quoted["README.md"]) >= 3
    wrong = [(name, figure, known.get(name)) for listed in quoted.values() for name, figure in listed if known.get(name) != figure]
    assert wrong == []


def test_every_number_of_does_it_work_is_a_figure_of_the_report() -> None:
    section = section_of((report.ROOT / "README.md").read_text(encoding="utf-8"), "Does it work?")
    assert len(section) > 200
    assert untagged(section) == []


def test_numbers_that_no_figure_stands_for_are_found() -> None:
    assert untagged("Off by 14<!-- truth.median_error --> % of 30<!-- truth.queries -->.") == []
    assert untagged("Off by 14<!-- truth.median_error --> % of 30, and 2.5 times.") == ["30", "2.5"]


def test_quoted_figures_are_renewed_and_unknown_ones_stay() -> None:
    text = "It is 0.5<!-- made.load --> and (12<!-- made.other --> of 13)."
    assert renewed(text, {"made.load": "2.5"}) == "It is 2.5<!-- made.load --> and (12<!-- made.other --> of 13)."


def test_tables_are_narrow_enough_for_a_phone() -> None:
    for path in (DOCS / "evidence").glob("*.json"):
        for found in json.loads(path.read_text(encoding="utf-8")).values():
            for table in (found["findings"] or {"tables": []})["tables"]:
                assert len(table["columns"]) <= 9
                assert all(len("  ".join(row[1:])) <= WIDEST for row in table["rows"]), table["title"]


def test_rank_correlation_is_one_for_the_same_order_and_bears_ties() -> None:
    assert spearman([(1.0, 10.0), (2.0, 20.0), (3.0, 1000.0)]) == pytest.approx(1.0)
    assert spearman([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]) == pytest.approx(-1.0)
    assert spearman([(1.0, 1.0), (2.0, 1.0), (3.0, 2.0)]) == pytest.approx(3**0.5 / 2)


def test_every_row_lies_in_as_many_cells_as_the_grid_copies_it_to() -> None:
    grid = choose_grid(request_of(CHAIN, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]).query, 4)
    rows = arrivals({name: [Stretch(1.0, 100.0, flow.values)] for name, flow in CHAIN.items()})
    cells = placed(rows, grid)
    for name, frame in rows.items():
        assert sum(cell[name].height for cell in cells) == frame.height * grid.copies((name,))


def test_values_join_with_the_selectivities_that_were_asked_for() -> None:
    wanted = TABLE_2[3][1]
    values, rng = Values(wanted, 10.0), np.random.default_rng(1)
    drawn = [values.drawn(stream, 200_000, rng) for stream in range(4)]
    for (a, b), selectivity in zip(PAIRS, wanted, strict=True):
        counts = [np.bincount(drawn[k], minlength=max(int(d.max()) for d in drawn) + 1) for k in (a, b)]
        found = float((counts[0] * counts[1]).sum()) / 200_000**2
        assert found == pytest.approx(selectivity / 10.0, rel=0.1)
        assert values.selectivity((a, b)) == pytest.approx(selectivity / 10.0, rel=0.05)


def test_what_one_cannot_use_goes_to_the_others_by_weight() -> None:
    assert filled(10.0, {"a": 1.0, "b": 100.0, "c": 100.0}, {"a": 2.0, "b": 2.0, "c": 1.0}) == {"a": 1.0, "b": 6.0, "c": 3.0}
    assert filled(10.0, {"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 1.0}) == {"a": 1.0, "b": 2.0}


def test_a_stream_that_is_held_back_loses_no_row_and_holds_the_watermark() -> None:
    batches = cut(arrivals({name: [Stretch(6.0, 10.0, {"x": 3})] for name in "ab"}), 1.0)
    made = held_back(batches, "b", 2, 4)
    assert [batch["b"].height for batch, _ in made] == [10, 10, 0, 0, 30, 10]
    assert [batch["a"].height for batch, _ in made] == [10] * 6
    assert all(int(batch["b"]["ts"].min()) >= watermark for batch, watermark in made if batch["b"].height)
    assert [watermark for _, watermark in made][5] == batches[5][1]


CHILD = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; x = bytearray(60_000_000); time.sleep(600)'])\n"


def test_what_is_watched_counts_all_processes_and_is_ended_with_them_at_its_limit(tmp_path: Path) -> None:
    files = f"open('{tmp_path}/child', 'w').write(str(child.pid))\nopen('{tmp_path}/held', 'wb').write(bytes(5000))\n"
    script = f"{CHILD}{files}print('{BEGIN}', flush=True)\nchild.wait()"
    found = watched([sys.executable, "-c", script], 2.0, tmp_path, tmp_path / "log", {})
    assert not found.ended and found.seconds >= 2.0
    assert found.memory > 60e6 and found.disk >= 5000
    left = Path(f"/proc/{(tmp_path / 'child').read_text()}/cmdline")

    def gone() -> bool:
        """Or ended, and not yet waited for by whoever has it now."""
        with suppress(OSError):
            return not left.read_text()
        return True

    until(gone, "what the command had started was ended")  # a process that is killed ends a moment later


def test_what_is_watched_ends_by_itself_or_fails_with_what_it_printed(tmp_path: Path) -> None:
    busy = f"print('{BEGIN}', flush=True)\nsum(i * i for i in range(3_000_000))\nprint('{END}', flush=True)"
    found = watched([sys.executable, "-c", busy], 60.0, tmp_path / "none", tmp_path / "log", {})
    assert found.ended and found.cpu > 0.0
    with pytest.raises(FailedError, match="no such luck"):
        watched([sys.executable, "-c", "raise SystemExit('no such luck')"], 60.0, tmp_path, tmp_path / "log", {})


def test_of_a_peer_that_was_ended_the_page_says_more_than() -> None:
    ended, broken_off = (Watched(ended, 10.0, 30.0, 2e9, 5e6) for ended in (True, False))
    assert _row("peer", ended, 1000.0, 10.0) == ["peer", "100", "30", "3.0", "2,000", "5"]
    assert _row("peer", broken_off, 1000.0, 10.0) == ["peer", "< 100", "> 30", "> 3.0", "> 2,000", "> 5"]


def raced(**cpu: Sequence[float]) -> Mapping[str, Any]:
    """A query on three engines, each in so many rounds."""
    titles = {"stem": STEM, "spark": PLANS_ORDER, "flink": FLINKS_BEST}
    runs = {
        titles[name]: [[asdict(Watched(True, seconds, seconds, 1e9 / seconds, 1e6)), [5, "9"]] for seconds in listed] for name, listed in cpu.items()
    }
    same = {
        "name": "chain of 4",
        "arrived": 1000.0,
        "rounds": 3,
        "limit": 150.0,
        "batch_seconds": 50.0,
        "load": 0.1,
        "flink": "Flink",
        "right": [5, "9"],
    }
    return same | {"duckdb": [1.0, 0.5], "runs": runs, "failed": []}


def test_peers_are_judged_by_the_middle_round_and_a_small_ratio_is_no_difference() -> None:
    found = peers_told(raced(stem=[10.0, 30.0, 11.0], spark=[60.0], flink=[13.0, 12.0, 9.0]))
    assert [claim.verdict for claim in found.claims] == [AGREES, IN_KIND, DIFFERS]
    assert "1.1 times the CPU of stem, which is no difference" in found.claims[2].found
    assert "10.0 to 30.0 CPU s" in found.settings[0]
    assert "less memory: Spark, plan's order (0.18 times)" in found.notes[1]
    ahead = peers_told(raced(stem=[10.0], spark=[120.0], flink=[7.0]))
    assert [claim.verdict for claim in ahead.claims] == [AGREES, AGREES, DIFFERS]
    assert "more rows/s: Flink" in ahead.notes[1] and "less CPU: Flink" in ahead.notes[1]


def test_adaptive_caches_agree_only_where_something_was_changed() -> None:
    runs = {title: [[100.0, 100.0, 100.0], [0.0, 0.0, 0.0]] for title in ("no cache", "adaptive")}
    fan = {"runs": runs, "changes": 0, "gains": [0.0, 0.01], "why": {"It is still the best.": 2}, "began": "none", "same": "no cache"}
    still = burst_told({"fans": {"1": fan}, "costs": "", "threshold": 0.05})
    assert still.claims[0].verdict == DIFFERS and "no change was made" in still.claims[0].found
    assert "1.0%" in still.notes[0] and "It is still the best." in still.notes[0]
    moved = burst_told({"fans": {"1": fan | {"changes": 2}}, "costs": "", "threshold": 0.05})
    assert moved.claims[0].verdict == AGREES and not moved.notes


def test_allocations_that_make_less_than_a_fixed_one_differ_and_the_page_says_what_would_have_to_hold() -> None:
    fixed = {"parts": [10, 10, 10], "over": [1.0] * 3, "let_in": 1.0, "results": 30, "cpu": 3.0}
    same = {"changes": ["6 plan changed, allocation, gain 4 %: why"], "error": 0.05, "gain": 0.05, "seconds": 60.0, "rate": 100.0, "costs": ""}
    for results, verdict in ((40, AGREES), (28, IN_KIND), (20, DIFFERS)):
        runs = {"allocation for SEL1": fixed, "adaptive": fixed | {"results": results}}
        found = allocating_told(same | {"runs": runs})
        assert found.claims[0].verdict == verdict
        assert ("Behind allocation for SEL1: it used the CPU" in found.notes[0]) == (results < 30)
        assert "6 (" not in found.notes[0] and "6, gain 4 %" in found.notes[0]
    idle = same | {"runs": {"allocation for SEL1": fixed, "adaptive": fixed | {"results": 20, "over": [1.0, 0.5, 1.0]}}}
    assert "(SEL2 0.50 of the cap)" in allocating_told(idle).notes[0]


def by_length(ratios: Mapping[float, float], tried: Mapping[float, float]) -> Findings:
    runs = [asdict(ByBatch(length, "mjoin", 1.0, 1.0 + length / 10, ratio, tried[length], 5.0)) for length, ratio in ratios.items()]
    return batches_told({"runs": runs, "costs": ""})


def test_what_is_said_of_batch_lengths_follows_from_the_figures() -> None:
    rising = by_length({1.0: 1.3, 20.0: 1.95}, {1.0: 100.0, 20.0: 150.0})
    assert rising.claims[0].verdict == DIFFERS
    assert "measured over predicted rises: 1.30 to 1.95" in rising.notes[0]
    assert "by what is tried is the most even, and explains it" in rising.notes[0]
    falling = by_length({1.0: 2.0, 20.0: 1.0}, {1.0: 100.0, 20.0: 100.0})
    assert "falls: 2.00 to 1.00" in falling.notes[0]
    even = by_length({1.0: 1.2, 20.0: 1.2}, {1.0: 100.0, 20.0: 150.0})
    assert even.claims[0].verdict == AGREES and "neither does better" in even.notes[0]


def query(number: int, *plans: tuple[float, float, float]) -> dict[str, Any]:
    """Of each plan: its price, what was measured, and rows in its caches."""
    listed = [
        Measured(f"plan {k}", f"{number} {k}", price, 0.0, 0.0, measured, 10.0, 11.0, 11.0, [(price, measured)], int(rows > 0), rows)
        for k, (price, measured, rows) in enumerate(plans)
    ]
    return asdict(QueryRuns(number, "chain", 3, 1, listed))


def test_what_going_over_caches_costs_is_found_from_plans_that_have_them() -> None:
    each = 2e-6
    listed = [query(k, (1.0 + k, 1.0 + k, 0.0), (2.0 + k, 2.0 + k + each * rows / BATCH, rows)) for k, rows in enumerate((1e5, 4e5, 9e5))]
    found = findings({"queries": listed, "unseen": listed[:2], "wanted": {"queries": [3, 1], "unseen": [2, 11]}, "costs": ""})
    assert going_over([QueryRuns(**{**one, "plans": [Measured(**plan) for plan in one["plans"]]}) for one in listed]) == pytest.approx(each)
    assert any("2.00 µs for each row or key" in note for note in found.notes)
    assert "Of the unseen queries" in found.claims[0].found
    assert found.quoted["unseen_queries"] == "2"
    alone = findings({"queries": listed, "unseen": [], "wanted": {"queries": [3, 1], "unseen": [0, 11]}, "costs": ""})
    assert "Unseen queries were not run." in alone.claims[0].found


def test_the_papers_statements_are_judged_each() -> None:
    loads = {n: {"M": (1.0, 0), "P": (1.1, 1), "X": (1.2, 0), "G": (1.25 if n in (2, 3, 4, 7) else 1.2, 1)} for n in range(1, 9)}
    assert [claim.verdict for claim in papers_claims(loads, 1.05)] == [AGREES] * 4 + [DIFFERS, AGREES]
    ahead = {n: by | {"G": (1.3 if n in (2, 3, 4, 7) else 1.2, 1)} for n, by in loads.items()}
    assert [claim.verdict for claim in papers_claims(ahead, 1.05)] == [AGREES] * 6


def test_engines_that_ran_before_a_run_was_broken_off_are_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []

    def run() -> Ran:
        ran.append("run")
        return Ran(Watched(True, 1.0, 2.0, 3.0, 4.0), (5, 2**70))

    first = once(tmp_path / "begun.json", "stem", run)
    assert once(tmp_path / "begun.json", "stem", run) == first
    assert ran == ["run"]
    assert once(tmp_path / "begun.json", "other", run) == first
    assert ran == ["run", "run"]


def test_flink_is_given_one_bound_on_event_times_a_join_and_all_windows() -> None:
    for query in QUERIES.values():
        text = flink_job(Path("rows"), Path("out"), query, list(query.flows))["query"]
        n = len(query.flows)
        assert text.count(".ts BETWEEN") == text.count(" JOIN ") == n - 1
        assert text.count(" BETWEEN ") == n * (n - 1) // 2
        assert all(predicate in text for predicate in query.predicates)


def test_steps_that_were_seen_make_the_results_and_count_pieces_by_the_window() -> None:
    flows = {name: Flow(50.0, 2 * BATCH, {"x": 10}) for name in "ab"}
    plan = shaped(request_of(flows, ["a.x = b.x"]), [("join-1", ["a", "b"], {})])
    one = InProcess(plan)
    one.run(cut(arrivals({name: [Stretch((MEASURED + 3) * BATCH, flow.rate, flow.values)] for name, flow in flows.items()}), BATCH))
    seen = list(steps_seen(plan, one))
    assert [step.counts["piece"] for step in seen] == [3.0, 3.0]
    assert [step.counts["probe"] for step in seen] == [50.0 * BATCH] * 2
    assert sum(step.counts["join"] for step in seen) == pytest.approx(sum(batch.results for batch in one.batches[-MEASURED:]) / MEASURED, rel=0.05)
