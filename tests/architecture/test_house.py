"""The structure of the project stays within limits, so that a reader finds his way.

A folder has few modules, for example, and a public name has one definition. `measure` reads the
project and returns the figures, which `python -m scripts.house` prints.
"""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.house import House, measure

ROOT = Path(__file__).resolve().parents[2]
MODULES_MAX = 20
"""The largest number of modules in a folder. A reader can take in such a list at a glance."""
REPEATED_NAMES_MAX = 14
"""The largest number of public names that have two definitions.

This is the present number of such names. Lower it when a name becomes unique.
"""


@pytest.fixture(scope="module")
def house() -> House:
    """Measure the checkout once for all tests, because that takes seconds."""
    return measure(ROOT)


def test_no_folder_has_more_modules_than_a_reader_takes_in(house: House) -> None:
    """Readers find a module by the list of names in its folder, which must stay short."""
    folder, number_of_modules = house.largest_folder
    assert number_of_modules <= MODULES_MAX, folder


def test_a_public_name_is_found_in_one_module(house: House) -> None:
    """A search for a public name must lead to one definition. A few names are exceptions."""
    assert len(house.repeated_names) <= REPEATED_NAMES_MAX, house.repeated_names


def test_no_module_reads_back_the_sentence_of_a_cause(house: House) -> None:
    """Code compares causes, and does not look for words in their sentences.

    A row of the trace has a cause, which is a member of an enum, and a sentence about this cause,
    which is for people.
    """
    assert house.parsed_causes == ()


def test_path_of_a_crash_is_what_the_code_calls(house: House) -> None:
    """`crash_path` lists the functions through which a crash passes, from the command to the node.

    Each function of this list must call the next function: directly, or as a method of a Ray actor
    (`actor.method.remote(...)`).
    """
    for caller, called in pairwise(house.crash_path):
        name = called.rpartition(".")[2]
        nodes = list(ast.walk(_function(caller)))
        direct_calls = {
            node.func.attr
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        # In `actor.method.remote`, the attribute `remote` is taken from the attribute `method`.
        remote_calls = {
            node.value.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
        }
        assert name in direct_calls | remote_calls, f"{caller} does not call {name}"


def _function(place: str) -> ast.AST:
    """Return the function that `place` names, such as `package.module:Class.method`."""
    module, _, qualified_name = place.partition(":")
    file = ROOT / f"{module.replace('.', '/')}.py"
    node: ast.AST = ast.parse(file.read_text())
    for part in qualified_name.split("."):
        node = next(
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and child.name == part
        )
    return node
