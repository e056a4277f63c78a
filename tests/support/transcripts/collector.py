"""Make pytest collect transcripts: each story of a file `scenarios/*.txt` is one test.

A story has commands, and below each command the results that it must print. To run the test, a
player carries out the commands, and the printed results are compared with the file. If the results
have changed on purpose, `pytest --rewrite` writes the new results into the file, and a person
reviews the diff.
"""

from collections.abc import Callable, Iterator
from difflib import unified_diff
from importlib import import_module
from typing import Protocol

import pytest

from tests.support.transcripts.story_file import Story, StoryFile, read_story_file

FOLDER = "scenarios"
"""The name of the folders with transcripts."""
PLAYERS = {
    "coordinator": "tests.support.transcripts.coordinator_player:CoordinatorPlayer",
    "transactions": "tests.support.transcripts.transaction_player:TransactionPlayer",
    "cluster": "tests.support.transcripts.cluster_player:ClusterPlayer",
}
"""The first word of a file's scene -> the class that plays the stories of the file.

The scene of a file consists of the commands with which each of its stories begins.
"""


class Player(Protocol):
    """Plays one story."""

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step, and return the lines that they print."""

    def close(self) -> None:
        """Check the final state, and stop whatever the player has started."""


class TranscriptDiffers(Exception):
    """Raised if the results of a story differ from those in its file; the message is the diff."""


class TranscriptFile(pytest.File):
    """A transcript, as pytest collects it."""

    def collect(self) -> Iterator["TranscriptItem"]:
        """Yield a test for each story."""
        story_file = read_story_file(self.path)
        for story in story_file.stories:
            yield TranscriptItem.from_parent(
                self, name=story.name, story_file=story_file, story=story
            )


class TranscriptItem(pytest.Item):
    """One story, as a test of pytest."""

    def __init__(self, *, story_file: StoryFile, story: Story, **others: object) -> None:
        super().__init__(**others)  # type: ignore[arg-type]  # arguments of pytest
        self._story_file = story_file
        self._story = story

    def runtest(self) -> None:
        """Play the story, and compare the results with the file.

        If they differ, `pytest --rewrite` writes them into the file.

        Raises: TranscriptDiffers if they differ, without `--rewrite`.
        """
        player = new_player(self._story_file)
        # The lines that the scene prints are dropped: the file has no results of the scene.
        player.play(self._story_file.scene)
        played = self._story.played(player.play)
        # There is no `finally` here. If the story hangs, closing the player would hang, too.
        player.close()
        if played == self._story:
            return
        if self.config.getoption("--rewrite"):
            # Read the file again, because another story of the file may have been rewritten since.
            rewritten = read_story_file(self.path).with_story(played)
            self.path.write_text(rewritten.text(), encoding="utf-8")
            return
        before, after = (story.text().splitlines() for story in (self._story, played))
        diff = unified_diff(before, after, "written", "played", lineterm="", n=8)
        raise TranscriptDiffers("\n".join((*diff, "", "pytest --rewrite writes what was played")))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        """Return only the diff of a story that differs, without a traceback."""
        if isinstance(excinfo.value, TranscriptDiffers):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[object, int | None, str]:  # type: ignore[override]  # a Path
        """Return the file and the name of the story, which pytest prints."""
        return self.path, None, self.name


def new_player(story_file: StoryFile) -> Player:
    """Return a player for the stories of a file.

    The first word of the file's scene says which player is needed.
    """
    kind = story_file.scene[0].split()[0]
    # A player's module imports the whole package under test. So import it only when it is needed.
    module, _, name = PLAYERS[kind].partition(":")
    make: Callable[[], Player] = getattr(import_module(module), name)
    return make()
