"""When batches take too long, the cap is what there is; when there is room again it is raised, and nothing is done for one slow batch."""

from __future__ import annotations

import pytest

from spark_adapter.overload import ALIKE, CALM, MARGIN, SOME, BatchTime, Fit, Overload

SPARK = 0.4  # seconds of every batch that no plan makes shorter
PROCESSES = 2


def worked(overload: Overload, load: float, batches: int, interval: float = 2.0, processes: int = PROCESSES) -> float:
    """Batches of a machine whose operator would take `load` CPU seconds for each and is let do what the cap allows; seconds of the last."""
    seconds = 0.0
    for number in range(batches):
        cpu = min(load, load if overload.cap is None else overload.cap * interval)
        seconds = SPARK + cpu / processes
        overload.add(BatchTime(number, seconds, cpu, processes, interval, cpu))
    return seconds


def test_one_batch_or_two_that_take_too_long_are_no_overload() -> None:
    overload = Overload(2.0, Fit())
    worked(overload, 1.0, 5)
    worked(overload, 9.0, SOME - 1)
    assert not overload.look() and overload.cap is None


def test_the_cap_is_what_leaves_batches_a_little_shorter_than_the_interval() -> None:
    overload = Overload(2.0, Fit())
    assert worked(overload, 9.0, SOME) > 2.0
    assert overload.look()
    assert worked(overload, 9.0, SOME) == pytest.approx(MARGIN * 2.0)
    assert not overload.look(), "a load that stays as it is changes nothing more"


def test_the_cap_is_what_there_is_whatever_the_load_and_is_gone_when_all_of_that_fits() -> None:
    overload = Overload(2.0, Fit())
    worked(overload, 9.0, SOME)
    overload.look()
    capped = overload.cap
    assert worked(overload, 1.0, SOME) < CALM * 2.0
    assert not overload.look() and overload.cap == capped
    overload.over()
    worked(overload, 1.0, SOME)
    assert not overload.look() and overload.cap is None


def test_the_cap_is_raised_where_batches_leave_room() -> None:
    """Half of the machine was taken by somebody else: the operator's CPU took twice as long."""
    overload = Overload(2.0, Fit())
    worked(overload, 9.0, SOME, processes=1)
    overload.look()
    capped = overload.cap
    assert capped is not None
    assert worked(overload, 9.0, SOME) < CALM * 2.0
    assert overload.look()
    assert overload.cap == pytest.approx(2 * capped)


def test_what_no_plan_can_help_is_said_and_sheds_nothing() -> None:
    overload = Overload(0.3, Fit())
    worked(overload, 0.01, SOME, interval=0.3)
    assert not overload.look()
    assert overload.hopeless and overload.cap is None


def test_a_single_step_leaves_a_tenth_of_the_work() -> None:
    overload = Overload(0.5, Fit())
    worked(overload, 100.0, SOME, interval=0.5)
    assert overload.look()
    assert overload.cap == pytest.approx(100.0 / 0.5 * 0.1)


def fitted(works: list[float], fixed: float, price: float = 1e-6) -> Fit:
    fit = Fit()
    for number, work in enumerate(works):
        fit.add(BatchTime(number, 1.0, fixed + price * work, 1, 1.0, work))
    return fit


def test_what_a_batch_takes_with_nothing_to_do_follows_from_batches_with_more_and_less_work() -> None:
    assert fitted([1e4, 2e4, 4e4, 3e4], 0.02).fixed == pytest.approx(0.02)
    assert fitted([1e4, 1e4 * (1 + ALIKE / 2), 1e4], 0.02).fixed == 0.0, "too much alike to tell"
    assert fitted([1e4, 2e4, 4e4], 0.0).fixed == pytest.approx(0.0, abs=1e-12)


def test_load_is_not_shed_for_what_shedding_does_not_help() -> None:
    """Batches take 1.2 seconds of 1, of which 0.7 whatever there is to do: half of the rest can be done."""
    fit = fitted([2.5e5, 5e5, 5e5], 0.7)
    overload = Overload(1.0, fit)
    for number in range(SOME):
        overload.add(BatchTime(number, 1.2, 1.2, 1, 1.0, 5e5))
    assert overload.look()
    assert overload.cap == pytest.approx((MARGIN * 1.0 - 0.7) / 0.5 * 0.5)


def test_steps_that_the_price_has_are_work_and_the_rest_of_what_is_fixed_is_not() -> None:
    """The same batches, where the plan's price has 0.5 of the 0.7 seconds: the cap is on what it prices, and that may be as much more."""
    fit = fitted([2.5e5, 5e5, 5e5], 0.7)
    fit.priced = 0.5
    assert fit.beyond_prices(2, 2.0) == pytest.approx(0.4)
    assert fitted([2.5e5, 5e5, 5e5], 0.1).beyond_prices(1, 1.0) == pytest.approx(0.1)
    overload = Overload(1.0, fit)
    for number in range(SOME):
        overload.add(BatchTime(number, 1.2, 1.2, 1, 1.0, 5e5))
    assert overload.look()
    assert overload.cap == pytest.approx(MARGIN * 1.0 - 0.2)
