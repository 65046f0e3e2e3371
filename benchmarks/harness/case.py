"""A case of a study, what was measured of it, and the file that keeps all results of a study."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

DONE, OVER, FAILED = "done", "over the limit", "failed"


@dataclass(frozen=True)
class Case:
    """Plain JSON values all through: they make the key of the case.

    Attributes
    ----------
    data : dict
        What `harness.data.load` reads: {"name": "naics_index"}, {"name": "debfiles", "rows": 9000}.
    method : str
        A function of `harness.methods`, or "study:function" for one of benchmarks/studies.
    params : dict
        Parameters of the method; for ours those of the estimator.
    options : dict
        All else: "workers" and "threads" of a cluster, "test" to predict the test rows.
    repeat : int
        Tells equal cases apart; `best` takes the fastest.
    """

    data: dict[str, Any]
    method: str = "memory"
    params: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    repeat: int = 0

    @property
    def key(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return sha256(text.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        """One line for progress."""
        parts = [*self.data.values(), self.method]
        parts += [f"{k}={v}" for k, v in (self.params | self.options).items()]
        return ", ".join(map(str, parts)) + f" (repeat {self.repeat})" * bool(self.repeat)


@dataclass(frozen=True)
class Result:
    """What was found: ``result["seconds"]``; a case that gave up may have found nothing."""

    case: Case
    status: str
    limit: float
    found: dict[str, Any]
    checksum: str
    environment: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.found.get(name)

    def is_final(self, limit: float, commit: str | None) -> bool:
        """Whether to measure again is of no use: done, or stopped by no smaller limit."""
        if commit is not None and self.environment["commit"] != commit:
            return False
        return self.status == DONE or (self.status == OVER and self.limit >= limit)


class Results:
    """JSON lines, one a case; a case that is measured again takes the place of its old line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Result]:
        """All results by the keys of their cases."""
        return {result.case.key: result for result in self._lines()}

    def _lines(self) -> Iterator[Result]:
        if self.path.exists():
            for line in self.path.read_text("utf-8").splitlines():
                values = json.loads(line)
                yield Result(**values | {"case": Case(**values["case"])})

    def add(self, result: Result) -> None:
        """Keep one more result; an interruption leaves the old file or the new one."""
        kept = self.read() | {result.case.key: result}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        lines = [json.dumps(asdict(one)) + "\n" for one in kept.values()]
        draft.write_text("".join(lines), "utf-8")
        os.replace(draft, self.path)
