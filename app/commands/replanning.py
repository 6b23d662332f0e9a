"""Whom `run --adapt` asks: the solvers in this process, or a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.plan import Plan
    from models.replan import Replan, Thresholds
    from models.request import PlanRequest
    from spark_adapter.adapt import Ask

__all__ = ["asking"]


def asking(url: str | None, thresholds: Thresholds, seconds: float) -> Ask:
    """A callable for the loop; a server may be silent for so many seconds."""
    from models.replan import Measured, Replan, ReplanRequest

    def ask(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Replan:
        body = ReplanRequest(plan=plan, request=request, measured=Measured(**measured), thresholds=thresholds)
        if url is None:
            from solvers.replan import replan

            return replan(body)
        from app.commands.remote import ask as ask_server

        return ask_server(url, "/v1/replans", body, Replan, seconds)

    return ask
