"""The page in a real browser, over a real service: what a person does with it, by pointer and by keyboard."""

from __future__ import annotations

import json
import os
import random
import subprocess
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Route

from app.service.settings import Settings
from models.request import Method, Options, PlanRequest, Resources
from tests.app.serving import EXAMPLES, example, running, until
from tests.app.tools import axe_script, python_tool
from tests.browser.driving import PATIENCE, Opened, Service
from tests.graphs import random_graph, with_a_measured_pair


def endless() -> dict[str, Any]:
    """A request that exact search cannot finish within any patience."""
    asked = PlanRequest(
        query=with_a_measured_pair(random_graph(random.Random(1), 20, "clique")),
        resources=Resources(cpu=1e9, memory_bytes=1e15),
        options=Options(method=Method.EXACT, time_limit=60.0),
    )
    body: dict[str, Any] = asked.model_dump(mode="json", exclude_none=True)
    return body


def test_the_first_plan_is_the_service_s_own(page_service: Service) -> None:
    with page_service.opened() as it:
        plan = it.asked("/v1/plans", example("auction"))
        assert it.fingerprint() == plan["fingerprint"]
        assert it.request() == example("auction")
        assert it.page.inner_text("#verdict") == "Fits" and it.page.inner_text("#proof") == "optimal"
        drawn = it.page.eval_on_selector_all("#tree-pane [role=treeitem]", "parts => parts.map((part) => part.dataset.key)")
        assert sorted(drawn) == sorted([stream["name"] for stream in plan["query"]["streams"]] + [operator["id"] for operator in plan["operators"]])
        for sentence in plan["explanation"]:
            assert sentence in it.page.inner_text("#why")


def test_an_edited_rate_changes_the_plan(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("star")
        before = it.fingerprint()
        it.edit("/query/streams/5/rate", "40")
        wanted = example("star")
        wanted["query"]["streams"][5]["rate"] = 40
        assert it.request() == wanted
        plan = it.asked("/v1/plans", wanted)
        assert it.fingerprint() == plan["fingerprint"] != before
        assert "40/s" in it.page.text_content('#tree-pane [data-key="shipments"]')  # type: ignore[operator]


def test_bands_are_wider_and_squares_larger_for_more(page_service: Service) -> None:
    with page_service.opened() as it:
        widths = it.page.eval_on_selector_all(
            "#tree-pane .band", "bands => Object.fromEntries(bands.map((band) => [band.dataset.of, Number(band.getAttribute('stroke-width'))]))"
        )
        assert widths["persons"] < widths["auctions"] < widths["bids"]
        sides = it.page.eval_on_selector_all(
            "#tree-pane .part",
            "parts => Object.fromEntries(parts.map((part) => [part.dataset.key, Number(part.querySelector('.kept')?.getAttribute('width') ?? 0)]))",
        )
        assert sides["persons"] < sides["auctions"] < sides["bids"] < sides["join-1"] and sides["join-2"] == 0


def test_a_cap_dragged_until_nothing_fits_tells_what_it_would_take(page_service: Service) -> None:
    with page_service.opened() as it:
        slider = it.page.locator("#memory-slider").bounding_box()
        assert slider is not None
        it.page.mouse.move(slider["x"] + slider["width"] * 0.55, slider["y"] + slider["height"] / 2)
        it.page.mouse.down()
        for share in (0.4, 0.2, 0.05, 0.0):
            it.page.mouse.move(slider["x"] + 2 + slider["width"] * share, slider["y"] + slider["height"] / 2)
        it.page.mouse.up()
        it.settled()
        plan = it.asked("/v1/plans", it.request())
        assert not plan["qualified"] and it.page.inner_text("#verdict") == "Does not fit"
        least = plan["shortfall"]["min_memory_bytes"] / 1e6
        assert f"at least {least:.3g} MB of memory" in it.page.inner_text("#shortfall")


def test_allowances_are_marked_where_the_cpu_is_short(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("sensors")
        it.page.fill("#cpu-cap", "0.02")
        it.settled()
        plan = it.asked("/v1/plans", it.request())
        least: dict[str, float] = {}
        for allowance in plan["allocation"]["allowances"]:
            least[allowance["input"]] = min(least.get(allowance["input"], 1.0), allowance["share"])
        marked = it.page.eval_on_selector_all("#tree-pane .part:has(.badge.allowance)", "parts => parts.map((part) => part.dataset.key)")
        assert sorted(marked) == sorted(name for name, share in least.items() if share < 1) and marked


def test_caches_are_marked_on_their_inputs(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("fraud")
        it.page.select_option('[data-pointer="/options/method"]', "mjoin")
        it.settled()
        caches = it.asked("/v1/plans", it.request())["caches"]
        marked = it.page.eval_on_selector_all(
            "#tree-pane .part:has(.badge.cache)", "parts => parts.map((part) => [part.dataset.key, part.querySelector('.badge.cache').textContent])"
        )
        assert sorted(marked) == sorted([cache["input"], cache["id"]] for cache in caches) and marked


def test_a_point_of_the_frontier_is_a_plan_to_look_at(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("star")
        it.frontier()
        points = it.asked("/v1/frontiers", {**example("star"), "resources": {}})["points"]
        assert it.page.locator("#frontier .dot.point").count() == len(points) > 1
        assert it.page.locator("#frontier .dot.chosen.current").count() == 1 and it.page.locator("#frontier .dot.mjoin").count() == 1
        assert it.page.locator("#frontier line.cap").count() >= 1
        it.page.locator("#frontier .dot.point").nth(1).click()
        it.page.wait_for_function("wanted => document.body.dataset.fingerprint === wanted", arg=points[1]["plan"]["fingerprint"], timeout=PATIENCE)
        assert f"frontier point 2 of {len(points)}" in it.page.inner_text("#viewing")
        it.page.click("#back")
        assert it.fingerprint() == it.asked("/v1/plans", example("star"))["fingerprint"]


def test_a_held_plan_is_compared_with_the_one_after_an_edit(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("star")
        held = it.asked("/v1/plans", example("star"))
        it.page.click("#hold")
        it.edit("/query/streams/5/rate", "40")
        it.page.wait_for_function("() => document.querySelector('#compare .moves')?.textContent.includes('40')", timeout=PATIENCE)
        now = it.asked("/v1/plans", it.request())
        diff = it.asked("/v1/diffs", {"before": held, "after": now})
        check = it.asked("/v1/checks", {"cases": [{"name": "star", "request": it.request(), "plan": held}]})
        said = it.page.inner_text("#compare")
        assert it.page.text_content("#check-verdict") == check["cases"][0]["verdict"]
        for line in diff["structure"] + diff["request"]:
            assert line in said
        shown = it.page.eval_on_selector_all("#compare tbody th", "cells => cells.map((cell) => cell.textContent)")
        assert shown == [change["figure"] for change in diff["cost"]][: len(shown)] and len(shown) >= 5
        moved = [
            set(it.page.eval_on_selector_all(f"{pane} .part.moved", "parts => parts.map((part) => part.dataset.key)"))
            for pane in ("#held-pane", "#tree-pane")
        ]
        assert {"promotions", "shipments", "join-1"} <= moved[0] and "shipments" in moved[1] and "customers" not in moved[0] | moved[1]
        boxes = [it.page.locator(pane).bounding_box() for pane in ("#held-pane", "#tree-pane")]
        assert boxes[0] and boxes[1] and boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
        it.page.click("#held-request")
        it.settled()
        assert it.request()["query"] == held["query"] and it.fingerprint() == held["fingerprint"]
        it.page.click("#release")
        assert it.page.locator("#held-pane").is_hidden() and it.page.locator("#tree-pane .moved").count() == 0


def test_an_approved_plan_comes_from_a_file_and_a_broken_one_is_refused(page_service: Service, tmp_path: Path) -> None:
    with page_service.opened() as it:
        approved = it.asked("/v1/plans", {**example("auction"), "options": {"method": "mjoin"}})
        file, broken = tmp_path / "plan.json", tmp_path / "broken.json"
        file.write_text(json.dumps(approved))
        broken.write_text(json.dumps({**approved, "operators": approved["operators"][:0]}))
        it.page.set_input_files("#approved", broken)
        it.page.wait_for_function(
            "() => document.querySelector('#compare-note').textContent.includes('broken.json could not be loaded')", timeout=PATIENCE
        )
        assert it.page.locator("#held-pane").is_hidden()
        it.page.set_input_files("#approved", file)
        it.page.wait_for_selector("#check-verdict", timeout=PATIENCE)
        check = it.asked("/v1/checks", {"cases": [{"name": "plan.json", "request": example("auction"), "plan": approved}]})
        assert it.page.text_content("#check-verdict") == check["cases"][0]["verdict"] == "regressed"  # less CPU, but more memory


def test_faults_stand_beside_their_fields_and_nothing_typed_is_lost(page_service: Service) -> None:
    with page_service.opened() as it:
        request = example("auction")
        request["query"]["streams"][1]["rate"] = -60
        request["query"]["predicates"][0]["right"] = "auction.id"
        request["query"]["predicates"][1]["selectivity"] = 2
        request["resources"]["cpu"] = 0
        request["query"]["observed"] = [{"streams": ["bids", "nobody"], "selectivity": 0.5}]
        last = it.fingerprint()
        it.paste(request)
        answer = it.client.post("/v1/plans", json=request).json()
        for pointer in ("/query/streams/1/rate", "/query/predicates/0/right", "/query/predicates/1/selectivity", "/resources/cpu"):
            detail = next(error["detail"] for error in answer["errors"] if error["pointer"] == pointer)
            field = it.page.locator(f'[data-pointer="{pointer}"]')
            assert field.get_attribute("aria-invalid") == "true"
            described = (field.get_attribute("aria-describedby") or "").split()
            assert detail in [it.page.text_content(f"#{name}") for name in described]
        assert "/query/observed/0/streams/1" in it.page.inner_text("#faults")
        assert it.fingerprint() == last
        it.edit("/query/streams/1/rate", "6x")
        assert it.page.input_value('[data-pointer="/query/streams/1/rate"]') == "6x"
        assert "must be a number" in it.page.inner_text("#form")
        assert it.page.input_value('[data-pointer="/query/predicates/1/selectivity"]') == "2"
        it.paste("{ this is no JSON")
        assert "This is not JSON" in it.page.inner_text("#json-fault")
        assert it.page.input_value("#json") == "{ this is no JSON"
        it.edit("/query/streams/1/rate", "61")
        assert it.page.input_value("#json") == "{ this is no JSON"  # what is typed there is not overwritten either
        it.paste(example("auction"))
        assert it.page.locator("#faults").is_hidden() and it.page.locator("[aria-invalid]").count() == 0


def test_typing_in_the_text_of_a_request_keeps_caret_and_undo(page_service: Service) -> None:
    with page_service.opened() as it:
        it.page.click("#paste")
        text = it.page.input_value("#json")
        place = text.index('"rate": 920') + len('"rate": 92')
        it.page.evaluate("place => document.querySelector('#json').setSelectionRange(place, place)", place)
        it.page.keyboard.type("5")
        it.settled()
        assert it.page.input_value('[data-pointer="/query/streams/2/rate"]') == "9250"
        assert it.page.evaluate("[document.activeElement.id, document.activeElement.selectionStart]") == ["json", place + 1]
        it.page.keyboard.press("Control+z")
        it.settled()
        assert it.page.input_value('[data-pointer="/query/streams/2/rate"]') == "920"
        it.page.focus('[data-unit="/query/streams/2"]')
        it.page.keyboard.press("ArrowDown")
        it.settled()
        assert it.request()["query"]["streams"][2]["window"] == {"rows": 60}
        assert it.page.evaluate("document.activeElement.dataset.unit") == "/query/streams/2"


def test_documents_that_are_no_requests_are_refused_with_reasons(page_service: Service) -> None:
    documents = (
        "{}",
        '{"query": null}',
        '{"query": {"streams": 5, "predicates": "none"}}',
        '{"query": {"streams": [null, 1, "x", {}, []], "predicates": [null, {}]}, "resources": [], "options": 3}',
        '{"query": {"streams": [{"name": "a", "rate": "1", "window": 5}]}, "costs": {"join": -1, "jon": 2}, "resources": {"cpu": "much"}}',
    )
    with page_service.opened() as it:
        last = it.fingerprint()
        for document in documents:
            it.paste(document)
            problem = it.client.post("/v1/plans", content=document, headers={"Content-Type": "application/json"}).json()
            said = it.page.inner_text("#faults") + it.page.inner_text("#form")
            for error in problem["errors"]:
                assert error["detail"] in said, document
            assert it.fingerprint() == last and json.loads(it.page.input_value("#json")) == json.loads(document)


def test_graphs_at_the_edges_are_drawn(page_service: Service) -> None:
    stream = {"name": "a" * 63, "rate": 1e-9, "window": {"rows": 1}, "tuple_bytes": 1}
    other = {"name": "b", "rate": 1e9, "window": {"seconds": 1e6}}
    with page_service.opened() as it:
        for streams in ([stream], [stream, other]):
            it.paste({"query": {"streams": streams}})
            plan = it.asked("/v1/plans", it.request())
            assert it.fingerprint() == plan["fingerprint"] and plan["warnings"][0] in it.page.inner_text("#why")
            it.frontier()
        assert it.page.inner_text("#verdict-note") == "no caps"


def test_markup_in_a_name_is_text(page_service: Service) -> None:
    with page_service.opened() as it:
        name = "<img src=x onerror=document.title='owned'>"
        it.edit("/query/streams/0/name", name)
        assert it.page.input_value('[data-pointer="/query/streams/0/name"]') == name
        assert it.page.input_value('[data-pointer="/query/predicates/1/right"]') == f"{name}.id"
        assert it.page.locator(".fault", has_text="must be a name").count() == 1
        it.page.check("input[value=YAML]", force=True)
        assert name in (it.page.text_content("#taken") or "")
        request = example("auction")
        request["query"]["streams"][0][name] = name
        it.paste(request)
        assert "is not a known field" in it.page.inner_text("#form") + it.page.inner_text("#faults")
        assert it.page.locator("img").count() == 0 and it.page.title() == "Watersmeet"


def test_the_policy_lets_no_text_become_markup(page_service: Service) -> None:
    policy = page_service.client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    with page_service.opened() as it:
        outcome = it.page.evaluate("() => { try { document.body.innerHTML += '<p>x'; return 'taken'; } catch (refused) { return refused.name; } }")
        assert outcome == "TypeError"
        it.complaints.clear()  # the browser says so in the console as well


def test_a_long_solve_can_be_cancelled_and_the_last_answer_stays(page_service: Service) -> None:
    with page_service.opened() as it:
        last = it.fingerprint()
        it.page.click("#paste")
        it.page.fill("#json", json.dumps(endless()))
        it.page.wait_for_function("() => /solving [0-9.]+ s/.test(document.querySelector('#status').textContent)", timeout=PATIENCE)
        it.page.wait_for_function("() => /so far .* CPU/.test(document.querySelector('#incumbent').textContent)", timeout=PATIENCE)
        it.page.wait_for_function("() => /gap [0-9.]+ %/.test(document.querySelector('#status').textContent)", timeout=PATIENCE)
        assert "bound" in it.page.inner_text("#incumbent")
        until(lambda: page_service.pool.busy == 1, "a worker solved")
        it.page.click("#cancel")
        it.settled()
        assert "cancelled" in it.page.inner_text("#status") and it.fingerprint() == last
        assert it.page.locator("#cancel").is_disabled()
        until(lambda: page_service.pool.busy == 0, "the solve was given up")
        it.pick("auction")
        assert it.fingerprint() == it.asked("/v1/plans", example("auction"))["fingerprint"]
    until(lambda: page_service.pool.ready, "the worker was replaced")


def burst(it: Opened, seconds: float, each: float = 1 / 30) -> int:
    """Edits of the bids' rate, thirty a second; the last value."""
    return int(
        it.page.evaluate(
            """async ([seconds, each]) => {
              const input = document.querySelector('[data-pointer="/query/streams/2/rate"]');
              const end = performance.now() + seconds * 1000;
              let value = 1000;
              while (performance.now() < end) {
                value += 7;
                input.value = String(value);
                input.dispatchEvent(new Event("input", { bubbles: true }));
                await new Promise((done) => setTimeout(done, each * 1000));
              }
              return value;
            }""",
            [seconds, each],
        )
    )


def test_a_burst_of_edits_leaves_the_last_answer_and_no_queue(page_service: Service) -> None:
    with page_service.opened() as it:
        flying, most = 0, 0

        def started(_: object) -> None:
            nonlocal flying, most
            flying += 1
            most = max(most, flying)

        def ended(_: object) -> None:
            nonlocal flying
            flying -= 1

        it.page.on("request", started)
        it.page.on("requestfinished", ended)
        it.page.on("requestfailed", ended)
        last = burst(it, 2.0)
        it.settled()
        wanted = example("auction")
        wanted["query"]["streams"][2]["rate"] = last
        plan = it.asked("/v1/plans", wanted)
        assert it.request() == wanted and it.fingerprint() == plan["fingerprint"]
        assert f"{last / 1000:.3g}k/s" in (it.page.text_content('#tree-pane [data-key="bids"]') or "")
        assert it.page.inner_text("#cpu-meter strong") == f"{plan['cost']['cpu']:.3g}"
        assert most <= 3  # one for the plan, one for what is asked about it, one that is being given up
        until(lambda: page_service.pool.busy == 0 and page_service.pool.waiting == 0, "the service was idle")


def test_answers_that_come_out_of_order_are_not_shown(page_service: Service) -> None:
    """The first edit's answer is held back until the second one's is on screen: it must not replace it."""
    with page_service.opened() as it:
        delayed: list[Any] = []

        def late(route: Any) -> None:
            body = json.loads(route.request.post_data)
            if body["query"]["streams"][2]["rate"] == 5:
                delayed.append((route, route.fetch()))
            else:
                route.continue_()

        it.page.route("**/v1/plans", late)
        it.page.fill('[data-pointer="/query/streams/2/rate"]', "5")
        it.page.wait_for_function("() => document.body.hasAttribute('data-pending')")
        for _ in range(PATIENCE // 10):
            if delayed:
                break
            it.page.wait_for_timeout(10)
        it.edit("/query/streams/2/rate", "90000")
        shown = it.page.inner_text("#cpu-meter strong")
        for route, response in delayed:
            try:
                route.fulfill(response=response)
            except Exception as gone:
                assert "route" in str(gone).lower() or "closed" in str(gone).lower() or "abort" in str(gone).lower()
        it.page.wait_for_timeout(200)
        assert delayed and it.page.inner_text("#cpu-meter strong") == shown
        assert "90k/s" in (it.page.text_content('#tree-pane [data-key="bids"]') or "")


def test_probe_orders_by_pointer_and_by_keyboard(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("star")
        plan = it.asked("/v1/plans", example("star"))
        root = plan["operators"][-1]
        probes = next(pipeline["probes"] for pipeline in root["pipelines"] if pipeline["input"] == "shipments")
        it.page.hover('#tree-pane [data-key="shipments"] .name')
        said = it.page.inner_text("#probes")
        below = {operator["id"]: "⋈".join(operator["streams"]) for operator in plan["operators"]}
        places = [said.index(f" {below.get(probe['target'], probe['target'])} ") for probe in probes]
        assert places == sorted(places) and len(places) == 4
        assert it.page.locator("#tree-pane .step circle").count() == 4
        it.page.mouse.move(0, 0)
        assert "Point at an input" in it.page.inner_text("#probes")
        it.page.focus("#hold")
        reached = []
        for _ in range(12):
            it.page.keyboard.press("Tab")
            if it.page.evaluate("document.activeElement.getAttribute('role')") == "treeitem":
                break
        for _ in range(len(below) + 6):
            reached.append(it.page.evaluate("document.activeElement.dataset.key"))
            it.page.keyboard.press("ArrowDown")
        assert set(reached) == {stream["name"] for stream in plan["query"]["streams"]} | set(below)
        assert "probes" in it.page.inner_text("#probes")


def test_everything_is_reached_by_keyboard_alone(page_service: Service) -> None:
    with page_service.opened() as it:
        it.frontier()
        it.page.evaluate("document.activeElement.blur()")
        reached: set[str] = set()
        for _ in range(120):
            it.page.keyboard.press("Tab")
            reached.add(
                it.page.evaluate("[document.activeElement].map((at) => at.id || at.dataset.pointer || at.getAttribute('role') || at.textContent)[0]")
            )
        wanted = {"example", "paste", "/query/streams/0/rate", "/query/predicates/0/selectivity", "cpu-slider", "memory-slider", "/options/method"}
        wanted |= {
            "treeitem",
            "radio",
            "hold",
            "load-approved",
            "statistic",
            "copy",
            "copy-link",
            "plan-json",
            "plan-svg",
            "Add stream",
            "Add predicate",
        }
        assert wanted <= reached
        it.page.focus("#cpu-slider")
        before = it.page.input_value("#cpu-cap")
        it.page.keyboard.press("ArrowLeft")
        it.settled()
        assert float(it.page.input_value("#cpu-cap")) < float(before) and it.request()["resources"]["cpu"] == float(it.page.input_value("#cpu-cap"))


def test_the_request_is_taken_along_as_curl_yaml_and_link(page_service: Service, tmp_path: Path) -> None:
    with page_service.opened() as it:
        for file in EXAMPLES:
            it.pick(file.stem)
            it.page.check("input[value=YAML]", force=True)
            assert yaml.safe_load(it.page.text_content("#taken") or "") == json.loads(file.read_text())
        it.page.check("input[value=curl]", force=True)
        command = it.page.text_content("#taken") or ""
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60)
        assert json.loads(done.stdout)["fingerprint"] == it.fingerprint()
        it.edit("/query/streams/0/rate", "777")
        it.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        it.page.click("#copy-link")
        it.page.wait_for_function("() => document.querySelector('#take [role=status]').textContent === 'Link copied'", timeout=PATIENCE)
        link = it.page.evaluate("navigator.clipboard.readText()")
        with page_service.opened(fragment="#" + link.split("#")[1]) as other:
            assert other.request() == it.request() and other.fingerprint() == it.fingerprint()


def test_the_request_is_taken_along_as_python(page_service: Service, tmp_path: Path) -> None:
    """With the client that its first lines say how to make."""
    generator = python_tool("openapi-python-client")
    document = tmp_path / "openapi.json"
    document.write_bytes(page_service.client.get("/openapi.json").content)
    path = f"{Path(generator).parent}:{os.environ['PATH']}"  # it formats what it makes with the ruff beside it
    command = [generator, "generate", "--path", str(document), "--meta", "none", "--output-path", str(tmp_path / "watersmeet_client")]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": path})
    with page_service.opened() as it:
        it.page.check("input[value=Python]", force=True)
        script = it.page.text_content("#taken") or ""
        for name in ("generate --path", "--meta none", "--output-path watersmeet_client"):
            assert name in script
        done = subprocess.run([str(Path(generator).parent / "python"), "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)
        plan = it.asked("/v1/plans", example("auction"))
        assert done.stdout.split() == ["optimal", str(plan["cost"]["cpu"]), str(plan["cost"]["memory_bytes"])]


def test_the_plan_is_taken_along_as_json_and_svg(page_service: Service, tmp_path: Path) -> None:
    with page_service.opened() as it:
        with it.page.expect_download() as coming:
            it.page.click("#plan-json")
        coming.value.save_as(tmp_path / "plan.json")
        assert json.loads((tmp_path / "plan.json").read_text()) == it.asked("/v1/plans", example("auction"))
        with it.page.expect_download() as coming:
            it.page.click("#plan-svg")
        coming.value.save_as(tmp_path / "plan.svg")
        drawing = ElementTree.fromstring((tmp_path / "plan.svg").read_text())
        assert drawing.tag.endswith("svg") and drawing.find("{http://www.w3.org/2000/svg}style") is not None
        words = "".join(drawing.itertext())
        assert "persons" in words and "join-2" in words


def test_a_broken_link_says_so_and_shows_the_example(page_service: Service) -> None:
    with page_service.opened(fragment="#request=AAAA") as it:
        assert "it may have been cut off" in it.page.inner_text("#notice")
        assert it.fingerprint() == it.asked("/v1/plans", example("auction"))["fingerprint"]


def switches_of(it: Opened) -> list[tuple[float, float]]:
    """The last value up to which the plan is known to be best and the first from which on another is, below the present value and above."""
    script = "lines => lines.map((line) => [Number(line.dataset.inside), Number(line.dataset.value)])"
    return sorted((inside, outside) for inside, outside in it.page.eval_on_selector_all("#findings .switch", script))


@pytest.mark.parametrize("cut", [(500.0, 700.0), (100.0, 2000.0)])
def test_sensitivity_takes_no_search_that_was_cut_off_for_a_proof(page_service: Service, cut: tuple[float, float]) -> None:
    """At these rates the service answers as if its time had run out before it found anything better than the plan on screen."""
    with page_service.opened() as it:

        def answered(route: Route) -> None:
            request = route.request.post_data_json or {}
            answer = route.fetch()
            made = answer.json()
            if cut[0] < request["query"]["streams"][5]["rate"] < cut[1]:
                made = {**made, "termination": "time_limit", "proof": "none", "cost": {**made["cost"], "cpu": 0.9}}
            route.fulfill(response=answer, json=made)

        it.pick("star")
        it.page.route("**/v1/plans", answered)
        it.page.select_option("#statistic", "shipments.rate")
        it.page.wait_for_selector("#findings p", timeout=PATIENCE)
        above = [found for found in switches_of(it) if found[1] > 400]
        said = it.page.inner_text("#findings")
        for inside, outside in above:
            assert inside <= max(400, cut[0]) and outside >= cut[1]
            assert "Between shipments rate = " in said
        assert above or "none that was found is better" in said


def test_sensitivity_shows_the_switch_where_it_happens(page_service: Service) -> None:
    with page_service.opened() as it:
        it.pick("star")
        chosen = it.asked("/v1/plans", example("star"))
        it.page.select_option("#statistic", "shipments.rate")
        it.page.wait_for_selector("#findings p", timeout=PATIENCE)
        switches = switches_of(it)
        limit = float(it.page.get_attribute("#limit", "data-value") or "nan")
        assert limit == next(each["high"] for each in chosen["validity"] if each["statistic"] == "shipments.rate")

        def beaten(rate: float) -> bool:
            """Whether some plan takes less CPU than the chosen one does at this rate."""
            request = example("star")
            request["query"]["streams"][5]["rate"] = rate
            mine = it.asked("/v1/estimates", {**request, "operators": chosen["operators"]})
            return bool(mine["cost"]["cpu"] > it.asked("/v1/plans", request)["cost"]["cpu"] * (1 + 1e-9))

        (low, from_), (to, high) = sorted(switches[0]), sorted(switches[1])
        assert low < from_ <= 400 <= to < high, "ten times fewer and ten times more shipments make another plan best"
        assert beaten(low) and beaten(high)
        assert not any(beaten(from_ * (to / from_) ** (step / 40)) for step in range(41))
        # Where there was no time to find the place, the page says between which two it is.
        exact = [each[1] / each[0] <= 1.001 for each in (sorted(switches[0]), sorted(switches[1]))]
        assert [line.startswith("Between") for line in it.page.locator("#findings .switch").all_inner_texts()] == [not found for found in exact]
        it.page.locator("#findings .switch button").first.click()
        assert "best at shipments rate" in it.page.inner_text("#viewing")


def test_an_edit_moves_nothing_on_the_page(page_service: Service) -> None:
    with page_service.opened() as it:
        it.frontier()
        parts = "section, #status, #cancel, #tree-pane, #probes"
        places = f"[...document.querySelectorAll('{parts}')].map((part) => JSON.stringify(part.getBoundingClientRect()))"
        before = it.page.evaluate(places)
        it.edit("/query/streams/2/rate", "50000")
        it.edit("/query/streams/0/window/seconds", "60000")
        assert it.page.inner_text("#verdict") == "Does not fit"
        after = it.page.evaluate(places)
        assert [a for a, b in zip(before, after, strict=True) if a != b] == []


def test_axe_finds_nothing_serious(page_service: Service) -> None:
    """With everything on the page that it can show: two trees, a verdict, charts, a fault."""
    with page_service.opened() as it:
        it.pick("star")
        it.page.click("#hold")
        it.edit("/query/streams/5/rate", "40")
        it.page.select_option("#statistic", "orders.rate")
        it.page.wait_for_selector("#findings p", timeout=PATIENCE)
        it.page.wait_for_selector("#check-verdict", timeout=PATIENCE)
        it.edit("/query/streams/0/rate", "-1")
        it.page.evaluate(axe_script().read_text("utf-8"))  # through the debugger, so that the page's policy stays as strict as it is
        script = "async () => (await axe.run(document)).violations.map((v) => [v.id, v.impact, v.nodes.map((n) => n.html + n.failureSummary)])"
        for width, scheme in ((1280, "light"), (1280, "dark"), (360, "dark"), (360, "light")):
            it.page.set_viewport_size({"width": width, "height": 900})
            it.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            assert it.page.evaluate("document.documentElement.scrollWidth") <= width
            found = it.page.evaluate(script)
            assert [violation for violation in found if violation[1] in ("serious", "critical")] == [], (width, scheme)
        it.complaints.clear()  # axe itself looks for what the policy forbids


def test_every_example_fits_a_phone(page_service: Service) -> None:
    with page_service.opened(360, 740) as it:
        for file in EXAMPLES:
            it.pick(file.stem)
            assert it.page.evaluate("document.documentElement.scrollWidth") == 360, file.stem
            clipped = it.page.eval_on_selector_all(
                ".figures strong", "parts => parts.filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.textContent)"
            )
            assert clipped == [], file.stem


def test_two_hundred_streams_stay_usable(page_service: Service) -> None:
    names = [f"s{i}" for i in range(200)]
    request = {
        "query": {
            "streams": [{"name": name, "rate": 5 + i % 17, "window": {"seconds": 10}} for i, name in enumerate(names)],
            "predicates": [{"left": f"{a}.k", "right": f"{b}.k", "selectivity": 0.01} for a, b in pairwise(names)],
        },
        "options": {"method": "bjtree", "time_limit": 20.0},  # a search that the clock does not end: page and test get the same plan
    }
    with page_service.opened() as it:
        it.paste(request)
        assert it.page.locator("#tree-pane [role=treeitem]").count() == 200 + len(it.asked("/v1/plans", request)["operators"])
        assert it.page.locator("#frontier button").inner_text() == "Find the frontier"
        it.page.click('[aria-label="Fit the plan into its box"]')
        box = it.page.locator("#tree-pane svg.tree").bounding_box()
        assert box and box["height"] <= 600


def test_a_service_with_keys_asks_for_one(page_service: Service) -> None:
    with running(Settings(workers=1, api_keys="sesame")) as (client, _):
        context = page_service.browser.new_context()
        page = context.new_page()
        page.goto(f"{client.base_url}/")
        page.wait_for_selector("#key", state="visible", timeout=PATIENCE)
        page.fill("#key", "sesame")
        page.keyboard.press("Tab")
        page.wait_for_selector("body[data-fingerprint]", timeout=PATIENCE)
        context.close()
