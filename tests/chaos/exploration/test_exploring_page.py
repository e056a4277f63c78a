"""The examples of docs/EXPLORING.md work.

The page shows a space, which is a file from which a search draws its experiments. It also has a
recipe for a search without one of Kafka's guards. A guard is a safety check that Kafka always
makes.
"""

import re
from pathlib import Path

from chaos.exploration.draw.draw import draw
from chaos.exploration.space import load_space

PAGE = Path(__file__).resolve().parents[3] / "docs" / "EXPLORING.md"


def test_space_of_the_page_can_be_drawn_from(tmp_path: Path) -> None:
    """Readers begin with a copy of the page's space, so `draw` must accept the space as it is."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    space = load_space(str(tmp_path / "mine.yaml"))
    # The space lists the numbers of brokers 3 and 5. 20 seeds are enough to draw both.
    drawn = [draw(space, seed) for seed in range(20)]
    assert {experiment.cluster.brokers for experiment in drawn} == {3, 5}
    assert all(experiment.faults for experiment in drawn)


def test_recipe_of_the_page_switches_the_guard_off() -> None:
    """The recipe overrides a setting of the space `standard`.

    So the guard is off in every drawn experiment, for example in that of seed 0.
    """
    # The recipe is a command with `--var cluster.guards.NAME=false --stop-after 1`.
    (override,) = re.findall(r"--var (cluster\.guards\.\S+) --stop-after", PAGE.read_text())
    drawn = draw(load_space("standard", [override]), seed=0)
    assert not drawn.cluster.guards.high_watermark_gate
