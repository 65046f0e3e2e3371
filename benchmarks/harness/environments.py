"""Environments of their own, for peers that clash with each other or with what is here."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".environments"
#: What the harness itself needs to read rows and to score.
ALWAYS = ("numpy", "scipy", "scikit-learn", "setuptools", "wheel")
#: What a package needs instead: PECOS calls functions that SciPy 1.12 no longer has, and its other
#: requirements (torch, transformers) are of its models of language, not of xlinear.
INSTEAD = {"libpecos": ("numpy<2", "scipy<1.12", "scikit-learn<1.5", "setuptools", "wheel")}

#: What a package needs besides, in an older release than pip would take: scikit-learn 1.8 no longer
#: has an argument that CellTypist passes.
OLDER = {"celltypist": ("scikit-learn<1.8",)}


def python_of(package: str) -> str:
    """The interpreter of an environment that has the package; made where there is none."""
    folder = FOLDER / package
    ready, python = folder / "ready", folder / "bin" / "python"
    if not ready.exists():
        print(f"    making an environment for {package}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        alone = ("--no-deps",) if package in INSTEAD else ()
        for wanted in (INSTEAD.get(package, ALWAYS), (*alone, *OLDER.get(package, ()), package)):
            subprocess.run([*install, *wanted], check=True, stdout=sys.stderr)
        ready.touch()
    return str(python)
