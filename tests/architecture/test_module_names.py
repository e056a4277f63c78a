"""Texts name modules and files that exist, and a door sign lists its folder's modules.

Docstrings and documents name modules, such as `cluster.host.host`, and files, such as
docs/kafka/BEHAVIOUR.md. If a module or file is moved, these texts must change, too.

The docstring of a folder's `__init__.py` is its door sign: it tells a reader what the folder has.
The modules and folders beside the `__init__.py` are called its members here.
"""

import ast
import keyword
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from chaos.experiment.structs import ClusterDefinition
from tests.architecture.test_layers import ROOT, tracked_files

PACKAGES = (
    *("protocol", "partition_log", "coordinator", "cluster", "chaos", "results_schema"),
    *("pipeline", "coordlab", "benchmarks", "scripts"),
)
DOTTED = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests)(?:\.\w+)+)`")
PATH = re.compile(
    rf"(?<![\w/.<>{{}}-])((?:{'|'.join(PACKAGES)}|tests|docs|experiments|explorations)/[\w./-]*\w"
    r"\.(?:py|md|yaml|toml|json|txt|js|css))\b"
)
"""DOTTED and PATH are the two forms in which a text names a module or a file.

DOTTED is a dotted name in backticks. PATH is a path below the root of the project, and not the end
of a longer path.
"""
SHORT = 60
"""A string in the code with fewer characters is no prose, so its words count as known names."""
EXAMPLES = {"experiments/NAME.yaml", "experiments/mine.yaml"}
"""Files that texts name as examples. A user would create them."""
SETTINGS = {f"cluster.{field.encode_name}" for field in msgspec.structs.fields(ClusterDefinition)}
"""Keys of an experiment file, such as `cluster.brokers`, which look like names of modules."""
ALIKE = {"coordlab/commands": "one module or one folder each", "pipeline/in_memory": "tables"}
"""Folders whose members are all of one kind, with this kind. Their door signs list no members."""
UNNAMED = {"__init__", "__main__"}
"""Modules that a door sign need not list."""


@cache
def modules() -> dict[str, Path]:
    """Return the file of every module and the folder of every package, by dotted name.

    Example: `cluster.host.host` -> cluster/host/host.py, `cluster.host` -> cluster/host.
    """
    path_by_name = {}
    for file in tracked_files(".py"):
        for path in (file, *file.parents):
            if path == ROOT:
                break
            parts = path.relative_to(ROOT).with_suffix("").parts
            path_by_name[".".join(parts)] = path
    return path_by_name


def exists(name: str) -> bool:
    """Return True if a dotted name is a module, a setting, or a name at a module's top level."""
    if name in modules() or ".".join(name.split(".")[:2]) in SETTINGS:
        return True
    module, _, attribute = name.rpartition(".")
    path = modules().get(module)
    if path is None or path.is_dir():
        return False
    definition = rf"^(?:async def|def|class) {attribute}\b|^{attribute}\b.*="
    return re.search(definition, path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def door_signs() -> Iterator[tuple[str, str, set[str]]]:
    """Yield (folder, docstring, names of the members) for each folder with code in PACKAGES."""
    for path in tracked_files("__init__.py"):
        folder = path.parent.relative_to(ROOT)
        if folder.parts[0] not in PACKAGES:
            continue
        sign = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        members = {
            name.rpartition(".")[2]
            for name, member_path in modules().items()
            if member_path.parent == path.parent
        }
        yield folder.as_posix(), sign, members - UNNAMED


def test_dotted_name_of_a_module_exists() -> None:
    """A text must not name a module by a name that it has no more."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked_files(".py", ".md")
        for name in DOTTED.findall(path.read_text(encoding="utf-8"))
        if not exists(name)
    ]
    assert missing == []


def test_path_of_a_file_exists() -> None:
    """A text must not name a file that does not exist.

    A path in a text is relative to the root of the project, or to the folder of the text.
    """
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked_files(".py", ".md", ".toml", ".yaml", ".txt")
        for name in PATH.findall(path.read_text(encoding="utf-8"))
        if name not in EXAMPLES and not (ROOT / name).exists() and not (path.parent / name).exists()
    ]
    assert missing == []


@pytest.mark.slow
def test_name_in_a_docstring_exists() -> None:
    """A lower-case name in backticks in a docstring must occur somewhere in the code.

    The name may be that of a module, a class, a function, a variable or an argument, or it may be a
    word in a short string. Kafka's own names are in camel case, and are not checked.
    """
    names_in_code = {part for name in modules() for part in name.split(".")} | set(keyword.kwlist)
    names_in_code |= {path.stem for path in (ROOT / "tests" / "corpus").iterdir()}
    file_by_name: dict[str, str] = {}  # name in a docstring -> file
    for path in tracked_files(".py"):
        # Docstrings are strings, too, but their words must not count as names in the code. A
        # docstring is a statement of its own. The walk reaches this statement before its string, so
        # the string is already in `docstrings` then.
        docstrings = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr):
                docstrings.add(node.value)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if len(node.value) < SHORT and node not in docstrings:
                    names_in_code.update(re.findall(r"\w+", node.value))
            elif isinstance(node, ast.Name):
                names_in_code.add(node.id)
            elif isinstance(node, ast.Attribute):
                names_in_code.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword):
                names_in_code.add(node.arg or "")  # None in a call with `**keywords`
            elif isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
            ):
                names_in_code.add(getattr(node, "name", ""))
                for name in re.findall(r"`([a-z_][a-z_0-9]*)`", ast.get_docstring(node) or ""):
                    file_by_name[name] = path.relative_to(ROOT).as_posix()
    unknown = {name: file for name, file in file_by_name.items() if name not in names_in_code}
    assert unknown == {}


def test_door_sign_has_the_reading_order_of_existing_members() -> None:
    """Some door signs have a paragraph "Reading order: ...". It may name only existing members."""
    wrong = []
    for folder, sign, members in door_signs():
        reading_order = sign.partition("Reading order:")[2].split("\n\n")[0]
        for name in re.findall(r"`([a-z]\w*)`", reading_order):
            is_known = name in members or name in PACKAGES or (ROOT / folder / name).is_dir()
            if not is_known:
                wrong.append(f"{folder}: no `{name}`")
    assert wrong == []


def test_door_sign_lists_everything_in_its_folder() -> None:
    """A new module must be added to the door sign of its folder."""
    unnamed = [
        f"{folder}: `{name}` is not named"
        for folder, sign, members in door_signs()
        if folder not in ALIKE
        for name in sorted(members)
        if not re.search(rf"\b{name}\b", sign)
    ]
    assert unnamed == []
