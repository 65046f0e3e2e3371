"""What the four papers compare with, small and clear: for benchmarks, never for use.

Linear ones take rows as `Rows` and have ``advance()``, an epoch or what stands for one, ``W``
(d, k) and ``dual()``. Those with kernels take the whole kernel matrix and count the kernel values
that a program would compute which keeps none, and the searches for a largest score.
"""

from .cutting_plane import CuttingPlane
from .exponentiated_gradient import ExponentiatedGradient
from .kernels import Trained, averaged_perceptron, mcsvm, mira, svm_struct
from .pegasos import Pegasos
from .rows import Rows, as_rows

__all__ = [
    "CuttingPlane", "ExponentiatedGradient", "Pegasos", "Rows", "Trained", "as_rows",
    "averaged_perceptron", "mcsvm", "mira", "svm_struct",
]  # fmt: skip
