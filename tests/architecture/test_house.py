"""The project's structure keeps to what a reader needs (`python -m scripts.house` prints it)."""

import ast
from itertools import pairwise
from pathlib import Path

from scripts.house import House, measure

ROOT = Path(__file__).resolve().parents[2]
MODULES_MAX = 20
REPEATED_NAMES_MAX = 14
HOUSE: House = measure(ROOT)


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    """A folder is read by its names."""
    folder, modules = HOUSE.largest_folder
    assert modules <= MODULES_MAX, folder


def test_a_public_name_is_found_in_one_module() -> None:
    """Who searches for a name finds the place that is meant."""
    assert len(HOUSE.repeated_names) <= REPEATED_NAMES_MAX, HOUSE.repeated_names


def test_no_module_reads_back_the_sentence_of_a_cause() -> None:
    """Causes are enums; the text beside them is for people."""
    assert HOUSE.parsed_causes == ()


def test_path_of_a_crash_is_what_the_code_calls() -> None:
    """Each function of the list calls the next one, by its name."""
    for caller, called in pairwise(HOUSE.crash_path):
        name = called.rpartition(".")[2]
        calls = {
            node.func.attr
            for node in ast.walk(_function(caller))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        remote = {
            node.value.attr
            for node in ast.walk(_function(caller))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
        }
        assert name in calls | remote, f"{caller} does not call {name}"


def _function(place: str) -> ast.AST:
    module, _, qualified = place.partition(":")
    node: ast.AST = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())
    for part in qualified.split("."):
        node = next(
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and child.name == part
        )
    return node
