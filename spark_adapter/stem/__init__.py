"""Engine `stem`: a whole plan as one stateful operator of state modules (paper 5)."""

from __future__ import annotations

__all__: list[str] = []
