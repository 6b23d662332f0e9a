"""A recorded run on the page: the time line, where the plan changed and why, and the trees before and after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_adapter.decisions import DECISIONS, Decision
from spark_adapter.pipeline import STATISTICS
from tests.app.tools import axe_script
from tests.browser.driving import Opened, Service
from tests.browser.recorded import record


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Decision]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, record(folder)


def opened(it: Opened, *files: Path) -> None:
    it.page.set_input_files("#run-files", list(files))
    it.page.wait_for_selector("#run:not([hidden])")


def test_a_run_is_drawn_with_its_changes_their_reasons_and_both_trees(page_service: Service, recorded: tuple[Path, list[Decision]]) -> None:
    folder, decisions = recorded
    plans = [decision for decision in decisions if decision.plan is not None]
    assert len(plans) > 1
    with page_service.opened() as it:
        opened(it, folder / STATISTICS, folder / DECISIONS)
        it.page.wait_for_selector("#run-charts svg")
        note = it.page.inner_text("#run-note")
        looks = sum(decision.decision == "keep" for decision in decisions)
        assert f"40 batches, 80 s of event time, {len(plans) - 1} change" in note and f"{looks} looks that kept the plan" in note
        labels = it.page.eval_on_selector_all("#run-charts svg", "charts => charts.map((chart) => chart.getAttribute('aria-label'))")
        assert labels == ["rows/s in over the run", "CPU over the run", "results/s over the run"]
        assert it.page.locator("#run-charts svg").nth(1).locator("path.measured, path.predicted").count() == 2
        # A flag at the second at which the change was in force, on every chart.
        assert it.page.locator("#run-charts .flag").count() == 3 * (len(plans) - 1)
        for reason in plans[-1].reasons:
            assert reason in it.page.inner_text("#run-reasons")
        for pane, plan in (("#run-before", plans[-2].plan), ("#run-after", plans[-1].plan)):
            assert plan is not None
            drawn = it.page.eval_on_selector_all(f"{pane} [role=treeitem]", "parts => parts.map((part) => part.dataset.key)")
            assert sorted(drawn) == sorted([*"abcd", *(operator["id"] for operator in plan["operators"])])
        assert it.page.locator("#run-after .moved").count() > 0
        asked = it.asked("/v1/diffs", {"before": plans[-2].plan, "after": plans[-1].plan})
        it.page.wait_for_selector("#run-difference li")
        assert it.page.eval_on_selector_all("#run-difference li", "lines => lines.map((line) => line.textContent)") == asked["structure"]


def test_a_point_in_time_is_read_by_pointer_and_by_keyboard(page_service: Service, recorded: tuple[Path, list[Decision]]) -> None:
    folder, decisions = recorded
    lines = [json.loads(line) for line in (folder / STATISTICS).read_text().splitlines()]
    with page_service.opened() as it:
        opened(it, folder / STATISTICS, folder / DECISIONS)
        assert it.page.inner_text("#run-reading b >> nth=0") == "Batch 39"
        it.page.focus("#run-point")
        it.page.keyboard.press("ArrowLeft")
        assert it.page.inner_text("#run-reading b >> nth=0") == "Batch 38"
        reached = [max(stream["last"] for stream in line["streams"]) for line in lines[37:39]]
        results = lines[38]["results"] / (reached[1] - reached[0]) * 1e6
        assert f"results/s {results:.3g} of" in it.page.inner_text("#run-reading")
        last = [decision.plan for decision in decisions if decision.plan is not None][-1]
        assert last is not None
        assert f"of {last['cost']['output_rate']:.3g} predicted" in it.page.inner_text("#run-reading")
        box = it.page.locator("#run-charts svg").nth(0).bounding_box()
        assert box is not None
        it.page.mouse.move(box["x"] + 60, box["y"] + 60)
        assert it.page.inner_text("#run-reading b >> nth=0") == "Batch 0"


def test_every_plan_can_be_chosen_and_the_run_closed(page_service: Service, recorded: tuple[Path, list[Decision]]) -> None:
    folder, _ = recorded
    with page_service.opened() as it:
        opened(it, folder / DECISIONS, folder / STATISTICS)
        it.page.click('[data-plan="0"].decision')
        assert it.page.inner_text("#run-change-title") == "Started" and not it.page.is_visible("#run-before")
        assert it.page.inner_text("#run-reasons") == "The pipeline was started with this plan."
        it.page.click("#run-charts .flag circle")
        assert it.page.get_attribute('[data-plan="1"].decision', "aria-pressed") == "true" and it.page.is_visible("#run-before")
        it.page.click("#close-run")
        it.page.wait_for_selector("#run", state="hidden")


def test_what_is_no_run_is_told_so_and_half_a_line_is_passed_over(
    page_service: Service, recorded: tuple[Path, list[Decision]], tmp_path: Path
) -> None:
    folder, _ = recorded
    half = tmp_path / DECISIONS
    half.write_text((folder / DECISIONS).read_text() + '{"batch": 41, "timest')
    with page_service.opened() as it:
        for files, said in (
            ([folder / STATISTICS], "choose decisions.jsonl"),
            ([folder / DECISIONS], "choose statistics.jsonl"),
            ([Path(__file__)], "No line of a run was found"),
        ):
            opened(it, *files)
            it.page.wait_for_function("text => document.getElementById('run-fault').textContent.includes(text)", arg=said)
            assert not it.page.is_visible("#run-body")
        opened(it, folder / STATISTICS, half)
        it.page.wait_for_selector("#run-charts svg")
        assert "1 line could not be read" in it.page.inner_text("#run-note")


def test_a_run_fits_a_phone_and_axe_finds_nothing_serious(page_service: Service, recorded: tuple[Path, list[Decision]]) -> None:
    folder, _ = recorded
    with page_service.opened() as it:
        opened(it, folder / STATISTICS, folder / DECISIONS)
        it.page.wait_for_selector("#run-difference li")
        it.page.evaluate(axe_script().read_text("utf-8"))
        script = "async () => (await axe.run('#run')).violations.map((v) => [v.id, v.impact, v.nodes.map((n) => n.html + n.failureSummary)])"
        for width, scheme in ((1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")):
            it.page.set_viewport_size({"width": width, "height": 900})
            it.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            it.page.wait_for_function(
                "() => document.querySelector('#run-charts svg').clientWidth <= document.getElementById('run-charts').clientWidth"
            )
            assert it.page.evaluate("document.documentElement.scrollWidth") <= width
            found = it.page.evaluate(script)
            assert [violation for violation in found if violation[1] in ("serious", "critical")] == [], (width, scheme)
        it.complaints.clear()  # axe itself looks for what the policy forbids
