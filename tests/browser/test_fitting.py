"""Trees fit their frames: on a phone, and beside a held plan."""

from __future__ import annotations

from itertools import pairwise

from tests.app.serving import EXAMPLES
from tests.browser.driving import Opened, Service


def fitting(it: Opened, pane: str) -> float:
    """The scale of a pane's tree; that all of the tree, the root and its results included, is inside the pane."""
    found: dict[str, float] = it.page.evaluate(
        """(pane) => {
          const box = document.querySelector(`${pane} .treebox`), tree = box.querySelector("svg.tree");
          const [inner, outer] = [tree.getBoundingClientRect(), box.getBoundingClientRect()];
          return {left: inner.left - outer.left, right: outer.left + box.clientWidth - inner.right, scale: inner.width / tree.viewBox.baseVal.width};
        }""",
        pane,
    )
    assert found["left"] >= 0 and found["right"] >= 0, (pane, found)
    return found["scale"]


def test_trees_fit_their_frame_on_a_phone_and_beside_a_held_plan(page_service: Service) -> None:
    for width in (390, 1280):
        with page_service.opened(width, 844) as it:
            for file in EXAMPLES:
                it.pick(file.stem)
                it.page.click("#hold")
                it.page.select_option('[data-pointer="/options/method"]', "bjtree")
                it.settled()
                scales = [fitting(it, pane) for pane in ("#tree-pane", "#held-pane")]
                assert min(scales) >= 0.5, (width, file.stem, scales)
                it.page.click("#release")


def test_a_deep_tree_that_cannot_fit_is_seen_from_its_root(page_service: Service) -> None:
    names = [f"s{i}" for i in range(14)]
    request = {
        "query": {
            "streams": [{"name": name, "rate": 2.0**i, "window": {"seconds": 10}} for i, name in enumerate(names)],
            "predicates": [{"left": f"{a}.k", "right": f"{b}.k", "selectivity": 1e-4} for a, b in pairwise(names)],
        },
        "options": {"method": "bjtree"},
    }
    with page_service.opened(390, 844) as it:
        it.paste(request)
        root = it.asked("/v1/plans", request)["operators"][-1]["id"]
        box, part = (it.page.locator(f"#tree-pane {each}").bounding_box() for each in (".treebox", f'[data-key="{root}"]'))
        assert box and part
        assert box["x"] <= part["x"] and part["x"] + part["width"] <= box["x"] + box["width"]
        assert box["y"] <= part["y"] and part["y"] + part["height"] <= box["y"] + box["height"]
