"""LaRank (Bordes et al. 2007): Crammer-Singer with any kernel, examples as they come."""

from .kernels import Kernel, kernel_matrix, norms_of
from .run import ALL_OPERATIONS, BLOCK_ROWS, TAU, Aim, LaRank, rebuild
from .steps import SCHEDULES
from .transfer import checked_state

__all__ = [
    "ALL_OPERATIONS",
    "BLOCK_ROWS",
    "SCHEDULES",
    "TAU",
    "Aim",
    "Kernel",
    "LaRank",
    "checked_state",
    "kernel_matrix",
    "norms_of",
    "rebuild",
]
