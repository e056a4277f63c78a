"""Collects transcripts as tests: each story of a file `scenarios/*.txt` is one test.

A transcript is a text file of stories. A story is a list of steps, each with commands and their
printed results. The file begins with the scene: the commands with which every story begins. A
player carries out the commands; the test passes if the results are those of the file. `pytest
--rewrite` writes the results into the file, for a person to review as a diff.
"""

from collections.abc import Callable, Iterator
from difflib import unified_diff
from importlib import import_module
from typing import Protocol

import pytest

from tests.support.transcripts.story_file import Story, StoryFile, read_story_file

FOLDER = "scenarios"
PLAYERS = {
    "coordinator": "tests.support.transcripts.coordinator_player:CoordinatorPlayer",
    "transactions": "tests.support.transcripts.transaction_player:TransactionPlayer",
    "cluster": "tests.support.transcripts.cluster_player:ClusterPlayer",
}
"""Players of a file's stories, by the first word of its scene."""


class Player(Protocol):
    """Plays one story."""

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step and return their results."""

    def close(self) -> None:
        """Stop the player; check the final state."""


class TranscriptDiffers(Exception):
    """A story whose results differ from its file."""


class TranscriptFile(pytest.File):
    """A file of stories."""

    def collect(self) -> Iterator["TranscriptItem"]:
        """Yield a test for each story."""
        story_file = read_story_file(self.path)
        for story in story_file.stories:
            yield TranscriptItem.from_parent(
                self, name=story.name, story_file=story_file, story=story
            )


class TranscriptItem(pytest.Item):
    """One story."""

    def __init__(self, *, story_file: StoryFile, story: Story, **others: object) -> None:
        super().__init__(**others)  # type: ignore[arg-type]  # pytest's own
        self._story_file = story_file
        self._story = story

    def runtest(self) -> None:
        """Play the story and compare, or rewrite it.

        Raises: TranscriptDiffers.
        """
        player = new_player(self._story_file)
        # The scene's results are not compared.
        player.play(self._story_file.scene)
        played = self._story.played(player.play)
        # This line is not in a `finally`, because after a story that hangs the player could not be
        # stopped, either.
        player.close()
        if played == self._story:
            return
        if self.config.getoption("--rewrite"):
            # Read the file again: another story of it may have been rewritten since.
            rewritten = read_story_file(self.path).with_story(played)
            self.path.write_text(rewritten.text(), encoding="utf-8")
            return
        before, after = (story.text().splitlines() for story in (self._story, played))
        diff = unified_diff(before, after, "written", "played", lineterm="", n=8)
        raise TranscriptDiffers("\n".join((*diff, "", "pytest --rewrite writes what was played")))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        """Return the diff alone, without the frames of the runner."""
        if isinstance(excinfo.value, TranscriptDiffers):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[object, int | None, str]:  # type: ignore[override]  # a Path
        """Return the place of the story."""
        return self.path, None, self.name


def new_player(story_file: StoryFile) -> Player:
    """Return a player for a file's stories, by the first word of its scene."""
    kind = story_file.scene[0].split()[0]
    # The player is imported only when it is needed, because it imports the whole package whose
    # stories it plays.
    module, _, name = PLAYERS[kind].partition(":")
    make: Callable[[], Player] = getattr(import_module(module), name)
    return make()
