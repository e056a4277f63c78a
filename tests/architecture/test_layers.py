"""Rules for all files of the project, which the tests check by reading them.

Some examples:

- Packages import only from the packages that docs/ARCHITECTURE.md lists above them.
- The code is formatted, and has types.
- Links in documents lead somewhere.
- No file contains a path that exists on one machine only.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from coordlab.own_packages import foreign_packages

ROOT = Path(__file__).resolve().parents[2]


def tracked_files(*suffixes: str) -> list[Path]:
    """Return the files that git tracks, and new files that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [
        ROOT / name
        for name in listed
        if name and (not suffixes or name.endswith(suffixes)) and (ROOT / name).is_file()
    ]


@pytest.mark.slow
def test_import_contracts_are_kept() -> None:
    """A package imports only from the packages that docs/ARCHITECTURE.md lists above it."""
    result = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_code_is_formatted_and_lint_free() -> None:
    """The formatter has nothing to change, and the linter reports no error."""
    ruff = Path(sys.executable).parent / "ruff"
    for arguments in (["format", "--check", "."], ["check", "."]):
        result = subprocess.run(
            [ruff, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_types_are_strict() -> None:
    """Mypy --strict passes on code and tests."""
    result = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_exactly_one_module_imports_ray_for_nodes_and_one_for_fan_out() -> None:
    """Only two modules import Ray: one starts nodes, and one distributes work to processes."""
    packages = {"protocol", "cluster", "results_schema", "chaos", "pipeline", "coordlab"}
    import_of_ray = re.compile(r"^\s*(import ray|from ray)\b", re.MULTILINE)
    importers = [
        path.relative_to(ROOT).as_posix()
        for path in tracked_files(".py")
        if path.relative_to(ROOT).parts[0] in packages and import_of_ray.search(path.read_text())
    ]
    assert sorted(importers) == ["cluster/ray/actors.py", "cluster/ray/tasks.py"]


def test_our_packages_are_imported_from_here() -> None:
    """Our packages are not hidden by packages of the same names that are installed.

    An installed distribution may have a package `protocol`, for example.
    """
    assert foreign_packages() == ()


def test_documents_link_only_to_files_that_exist() -> None:
    """Links are relative to their page. Addresses of the web are not checked."""
    missing = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in tracked_files(".md")
        # The path of a link, without its anchor: `a.md` of `[text](a.md#heading)`.
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []


def test_documents_link_only_to_headings_that_exist() -> None:
    """A link such as FIDELITY.md#deviations leads to the heading "Deviations" of that page."""
    missing = []
    for page in tracked_files(".md"):
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]*)\)", page.read_text()):
            # A link without a path, `[text](#heading)`, leads to a heading of the same page.
            linked_page = page.parent / target if target else page
            headings = re.findall(r"^#+ (.*)$", linked_page.read_text(), re.MULTILINE)
            if anchor not in {anchor_of(heading) for heading in headings}:
                missing.append(f"{page.relative_to(ROOT)} -> {target}#{anchor}")
    assert missing == []


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading: `What's new?` -> `whats-new`."""
    without_punctuation = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return without_punctuation.replace(" ", "-")


def test_every_deviation_is_listed_in_fidelity() -> None:
    """A comment DEVIATION in the code marks a known difference from Kafka.

    docs/FIDELITY.md must name each file that has such a comment.
    """
    fidelity = (ROOT / "docs" / "FIDELITY.md").read_text()
    unlisted = []
    for path in tracked_files(".py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("tests/"):
            continue
        if re.search(r"DEVIATION\b", path.read_text()) and f"`{name}`" not in fidelity:
            unlisted.append(name)
    assert unlisted == []


def test_fidelity_lists_no_removed_deviation() -> None:
    """docs/FIDELITY.md must name no file in which no comment DEVIATION is left."""
    fidelity = (ROOT / "docs" / "FIDELITY.md").read_text()
    section = fidelity.split("## Deviations", 1)[1].split("\n## ", 1)[0]
    listed_files = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", section))
    stale = [
        name
        for name in sorted(listed_files)
        if not (ROOT / name).is_file() or "DEVIATION" not in (ROOT / name).read_text()
    ]
    assert stale == []


def test_no_machine_path_or_index_address_is_committed() -> None:
    """A path on one machine, or the address of a package index, is of no use to other people."""
    problems = []
    index_address = re.compile(r"--(extra-)?index-url|\bpypi\.|files\.pythonhosted|/simple/?\b")
    machine_path = re.compile(r"(/root/|/home/[a-z]|/work/)")
    for path in tracked_files():
        # This file has the two patterns themselves.
        if path.suffix in {".png", ".parquet"} or path == Path(__file__):
            continue
        text = path.read_text(errors="replace")
        problems += [
            f"{path.relative_to(ROOT)}: {pattern.pattern}"
            for pattern in (index_address, machine_path)
            if pattern.search(text)
        ]
    assert problems == []
