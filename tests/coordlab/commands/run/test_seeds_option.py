"""`coordlab run --seeds 1..4,9`: the valid values, and the options that contradict `--seeds`."""

import click
import pytest

from coordlab.cli import run_cli
from coordlab.parameters import MAX_SEEDS, Seeds
from results_schema.results import EXIT_BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1..4", (1, 2, 3, 4)),
        ("1,5,9", (1, 5, 9)),
        ("7", (7,)),
        ("9, 1..3,2", (9, 1, 2, 3)),
        ("0..0", (0,)),
    ],
)
def test_option_seeds_is_a_list_of_ranges_and_numbers(text: str, seeds: tuple[int, ...]) -> None:
    """A seed that is named twice is played once, in its first place."""
    assert Seeds().convert(text, param=None, ctx=None) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-20", "expected seeds such as `1..20`, `1,5,9` or `1..5,9`, got `1-20`"),
        ("", "expected seeds such as `1..20`"),
        ("1,,2", "expected seeds such as `1..20`"),
        ("-1..3", "expected seeds such as `1..20`"),
        ("5..1", "expected the smaller seed first, such as `1..5`, got `5..1`"),
        (f"0..{MAX_SEEDS}", f"expected at most {MAX_SEEDS:,} seeds"),
    ],
)
def test_invalid_seed_is_refused_with_the_expected_form(text: str, message: str) -> None:
    """The message says which forms are valid, because a user may guess the form of a range."""
    with pytest.raises(click.BadParameter, match="expected") as refused:
        Seeds().convert(text, param=None, ctx=None)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1..3"], "several seeds are played in virtual time; expected `--runtime"),
        (["--seeds", "1..3", "--runtime", "ray"], "expected `--runtime virtual` beside it"),
        (
            ["--seeds", "1..3", "--seed", "7", "--runtime", "virtual"],
            "expected one of `--seed` and `--seeds`, got both",
        ),
        (["--workers", "2", "--runtime", "virtual"], "expected `--seeds` beside it"),
    ],
)
def test_seeds_beside_a_contradicting_option_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options are refused before a run starts, with exit code 254."""
    assert run_cli(["run", "graceful_move", *arguments]) == EXIT_BAD_ARGUMENTS
    # The message is in a box. The box has a frame and line ends, which interrupt the text.
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
