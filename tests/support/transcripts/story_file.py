"""Read and write transcripts: files of stories, each of which is a test.

A transcript looks like this:

    # Comments about the whole file.

    coordinator partitions=2

    == a member whose session ends is removed ==
    # Comments about the story.

    # The session is over.
    advance 500
    ----
    @500

The commands before the first story are called the scene. Every story begins with these commands. A
story consists of steps, which are separated by empty lines. A step has comments, then its commands,
then the line `----`, and then the results. This module does not know what the commands mean: a
player (an object that `collector` chooses) carries the commands out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

RULE = "----"
"""The line between the commands of a step and their results."""


class NotATranscript(Exception):
    """Raised for a text that is no transcript. The message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Some commands, and the lines that they print together (`output`)."""

    comments: tuple[str, ...]
    commands: tuple[str, ...]
    output: tuple[str, ...]

    def text(self) -> str:
        """Return the step as it is written in a file."""
        return "\n".join((*self.comments, *self.commands, RULE, *self.output)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story, which is one test. The comments say what the story is about."""

    name: str
    comments: tuple[str, ...]
    steps: tuple[Step, ...]

    def text(self) -> str:
        """Return the story as it is written in a file."""
        head = "\n".join((f"== {self.name} ==", *self.comments)) + "\n"
        return "\n".join((head, *(step.text() for step in self.steps)))

    def played(self, play: Callable[[tuple[str, ...]], list[str]]) -> "Story":
        """Call `play` with the commands of each step, and return the story with the new results."""
        steps = tuple(replace(step, output=tuple(play(step.commands))) for step in self.steps)
        return replace(self, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryFile:
    """The stories of one file."""

    comments: tuple[str, ...]
    # The commands with which every story begins.
    scene: tuple[str, ...]
    stories: tuple[Story, ...]

    def text(self) -> str:
        """Return the text of the whole file."""
        # An empty line separates each part from the next one.
        parts = ["\n".join(self.comments) + "\n"]
        if self.scene:
            parts.append("\n".join(self.scene) + "\n")
        return "\n".join((*parts, *(story.text() for story in self.stories)))

    def with_story(self, story: Story) -> "StoryFile":
        """Return the file with `story` in place of the story that has the same name."""
        return replace(
            self,
            stories=tuple(
                story if existing.name == story.name else existing for existing in self.stories
            ),
        )


def read_story_file(path: Path) -> StoryFile:
    """Read a file. Raises: NotATranscript, also if two stories have the same name."""
    head, *story_lines = _split(path.read_text(encoding="utf-8").splitlines())
    comments = tuple(line for line in head if line.startswith("#"))
    scene = tuple(line for line in head if line and not line.startswith("#"))
    stories = tuple(_story(lines) for lines in story_lines)
    names = [story.name for story in stories]
    for name in names:
        if names.count(name) > 1:
            raise NotATranscript(f"{path.name}: two stories are called {name!r}")
    return StoryFile(comments=comments, scene=scene, stories=stories)


def _split(lines: list[str]) -> list[list[str]]:
    """Return the lines before the first story, and then the lines of each story."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("== "):
            parts.append([])
        parts[-1].append(line)
    return parts


def _story(lines: list[str]) -> Story:
    """Return the story that some lines contain. The first line is the title of the story.

    Raises: NotATranscript.
    """
    title, *rest = lines
    if not title.endswith(" =="):
        raise NotATranscript(f"expected `== name ==`, got {title!r}")
    # The comments directly below the title are about the story.
    comments = tuple(takewhile(lambda line: line.startswith("#"), rest))
    return Story(
        name=title.removeprefix("== ").removesuffix(" =="),
        comments=comments,
        steps=tuple(_step(block) for block in _blocks(rest[len(comments) :])),
    )


def _blocks(lines: list[str]) -> list[list[str]]:
    """Return the blocks into which empty lines divide the lines."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _step(block: list[str]) -> Step:
    """Return the step that a block contains. Raises: NotATranscript if it has no command."""
    # A step that a person has just written has no RULE and no results yet. `pytest --rewrite` adds
    # the RULE and the results.
    rule_index = block.index(RULE) if RULE in block else len(block)
    commands = tuple(line for line in block[:rule_index] if not line.startswith("#"))
    if not commands:
        raise NotATranscript(f"a step without a command: {block[0]!r}")
    return Step(
        comments=tuple(line for line in block[:rule_index] if line.startswith("#")),
        commands=commands,
        output=tuple(block[rule_index + 1 :]),
    )
