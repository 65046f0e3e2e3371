"""What the README and docs/ say is true: their Python runs, and CI runs their test command."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEST_COMMAND = re.compile(r"^<!-- test-command -->\n```\w*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes is not written into the repository
    text = page.read_text("utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in FENCED.finditer(text):
        above = "\n" * text.count("\n", 0, block.start(1))  # a traceback shows the line of the page
        exec(compile(above + block[1], str(page), "exec"), namespace)


def test_the_readme_is_one_screen_with_six_lines_to_run() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (block,) = FENCED.findall(text)
    assert sum(bool(line.strip()) for line in block.splitlines()) == 5
    assert len(text.splitlines()) <= 60


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (command,) = TEST_COMMAND.findall(readme)
    shown = subprocess.run(
        [ROOT / ".ci" / "run", "--show-test-command"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == command + "\n"
    assert command == "pip install '.[test]' && pytest"


def test_the_test_command_is_written_nowhere_else() -> None:
    (command,) = TEST_COMMAND.findall((ROOT / "README.md").read_text("utf-8"))
    for script in [ROOT / ".ci" / "run", ROOT / ".github" / "workflows" / "test.yml"]:
        assert command not in script.read_text("utf-8"), script
    assert "$(.ci/run --show-test-command)" in script.read_text("utf-8")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text("utf-8")):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            slugs = ["#" + re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
            assert anchor in slugs, f"{page.name} links to {target}{anchor}"
