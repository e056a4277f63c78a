"""Limits of the project's structure (`python -m scripts.house` prints the figures)."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.house import House, measure

ROOT = Path(__file__).resolve().parents[2]
MODULES_MAX = 20
"""Most modules that one folder may have: a reader takes such a list in at a glance."""
REPEATED_NAMES_MAX = 14
"""Most public names that may have two definitions. Lower it when a name becomes unique."""


@pytest.fixture(scope="module")
def house() -> House:
    """Measure the checkout once for all tests, because that takes seconds."""
    return measure(ROOT)


def test_no_folder_has_more_modules_than_a_reader_takes_in(house: House) -> None:
    """Readers find a module by the list of names in its folder, which must stay short."""
    folder, modules = house.largest_folder
    assert modules <= MODULES_MAX, folder


def test_a_public_name_is_found_in_one_module(house: House) -> None:
    """A search for a public name must lead to one definition; a few names may repeat."""
    assert len(house.repeated_names) <= REPEATED_NAMES_MAX, house.repeated_names


def test_no_module_reads_back_the_sentence_of_a_cause(house: House) -> None:
    """Code must compare causes, which are enums; the sentence beside a cause is for people."""
    assert house.parsed_causes == ()


def test_path_of_a_crash_is_what_the_code_calls(house: House) -> None:
    """Each function of the listed path calls the next, directly or as a method of a Ray actor."""
    for caller, called in pairwise(house.crash_path):
        name = called.rpartition(".")[2]
        calls = {
            node.func.attr
            for node in ast.walk(_function(caller))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        # `actor.method.remote(...)` is an attribute (`remote`) of an attribute (`method`).
        remote = {
            node.value.attr
            for node in ast.walk(_function(caller))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
        }
        assert name in calls | remote, f"{caller} does not call {name}"


def _function(place: str) -> ast.AST:
    """Return the function that `place` names, such as `package.module:Class.method`."""
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
