"""The page of evidence is what its JSON says: nothing more, nothing older, nothing by hand."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from spark_adapter.stem.shares import choose_grid
from tests.app.serving import until
from tests.bench import report
from tests.bench.bench_caches import TABLE_2
from tests.bench.bench_stem import CHAIN, Flow, request_of, shaped
from tests.bench.bench_truth import BATCH, MEASURED, spearman
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Figure, Findings, NotAtHandError, Part, Section, Table, line, load
from tests.bench.evidence_operator import PAIRS, Values
from tests.bench.evidence_page import written
from tests.bench.evidence_peers import QUERIES, Ran, _row, flink_job, once
from tests.bench.evidence_scale import placed
from tests.bench.operator_paper5 import held_back
from tests.bench.quoted import quotable, quotes_in, renewed
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
