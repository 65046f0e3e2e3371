"""What an epoch did and what a certificate found, whatever solver and place."""

from __future__ import annotations

from typing import NamedTuple


class Tally(NamedTuple):
    """What the visits of an epoch did.

    ``gap`` is what the visits saw of primal - dual on their way, free of charge; nan where a
    solver sees no whole example.
    """

    gain: float = 0.0  # rise of the dual
    violation: float = 0.0  # largest met
    work: int = 0  # class scores computed
    gap: float = float("nan")
    active: float = 1.0  # share of the rows that were visited

    def plus(self, other: tuple[float, float, int]) -> Tally:
        """Counted together with the gain, violation and work of one more visit."""
        gain, violation, work = other
        return self._replace(
            gain=self.gain + gain,
            violation=max(self.violation, violation),
            work=self.work + work,
        )


class Bounds(NamedTuple):
    """What a certificate found, in float64."""

    primal: float
    dual: float
