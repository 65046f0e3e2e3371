"""The splitting method: one state machine, driven in memory (`Splitting`) and by tasks."""

from .run import Splitting

__all__ = ["Splitting"]
