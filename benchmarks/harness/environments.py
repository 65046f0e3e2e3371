"""Environments of their own, for peers that clash with each other or with what is here."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".environments"
#: What the harness itself needs to read rows and to score.
ALWAYS = ("numpy", "scipy", "scikit-learn", "setuptools", "wheel")


def python_of(package: str) -> str:
    """The interpreter of an environment that has the package; made where there is none."""
    folder = FOLDER / package
    ready, python = folder / "ready", folder / "bin" / "python"
    if not ready.exists():
        print(f"    making an environment for {package}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *ALWAYS, package]
        subprocess.run(install, check=True, stdout=sys.stderr)
        ready.touch()
    return str(python)
