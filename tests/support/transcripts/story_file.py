"""The text of transcripts: a file of stories, each a list of steps with their results.

A file begins with comments (`#`), and perhaps with commands that precede those of every story (the
scene). A story begins with `== name ==` and comments that describe it. A step has comments, then
one command per line, then the line `----` and the results, up to an empty line. For example:

    # The session is over.
    advance 500
    ----
    @500

This module does not know what the commands mean. A player carries them out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

RULE = "----"
"""Line between the commands of a step and their results."""


class NotATranscript(Exception):
    """Raised for a text that is no transcript; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Commands that are carried out one after another, and the results of all of them."""

    comments: tuple[str, ...]
    commands: tuple[str, ...]
    output: tuple[str, ...]

    def text(self) -> str:
        """Return the step as text of a file."""
        return "\n".join((*self.comments, *self.commands, RULE, *self.output)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story, which is one test; `comments` describe it."""

    name: str
    comments: tuple[str, ...]
    steps: tuple[Step, ...]

    def text(self) -> str:
        """Return the story as text of a file."""
        head = "\n".join((f"== {self.name} ==", *self.comments)) + "\n"
        return "\n".join((head, *(step.text() for step in self.steps)))

    def played(self, play: Callable[[tuple[str, ...]], list[str]]) -> "Story":
        """Play the story, and return it with the results of `play` for each step."""
        steps = tuple(replace(step, output=tuple(play(step.commands))) for step in self.steps)
        return replace(self, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryFile:
    """The stories of one file."""

    comments: tuple[str, ...]
    scene: tuple[str, ...]  # commands that precede those of every story
    stories: tuple[Story, ...]

    def text(self) -> str:
        """Return the whole file."""
        # Each part is separated from the next by an empty line.
        parts = ["\n".join(self.comments) + "\n"]
        if self.scene:
            parts.append("\n".join(self.scene) + "\n")
        return "\n".join((*parts, *(story.text() for story in self.stories)))

    def with_story(self, story: Story) -> "StoryFile":
        """Return the file with another text of the story of this name."""
        return replace(
            self,
            stories=tuple(
                story if existing.name == story.name else existing for existing in self.stories
            ),
        )


def read_story_file(path: Path) -> StoryFile:
    """Return the stories of a file.

    Raises: NotATranscript, also for two stories of one name.
    """
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
    """Return the lines before the first story, and those of each story."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("== "):
            parts.append([])
        parts[-1].append(line)
    return parts


def _story(lines: list[str]) -> Story:
    """Return the story of its lines, the title first. Raises: NotATranscript."""
    title, *rest = lines
    if not title.endswith(" =="):
        raise NotATranscript(f"expected `== name ==`, got {title!r}")
    # Comments directly below the name describe the story.
    end = next((number for number, line in enumerate(rest) if not line.startswith("#")), len(rest))
    return Story(
        name=title[3:-3],  # without the equals signs and blanks at both ends
        comments=tuple(rest[:end]),
        steps=tuple(_step(block) for block in _blocks(rest[end:])),
    )


def _blocks(lines: list[str]) -> list[list[str]]:
    """Return the blocks of lines that empty lines separate."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _step(block: list[str]) -> Step:
    """Return the step of a block of lines. Raises: NotATranscript if it has no command."""
    # A step that a person has just written has no RULE and no results yet; `--rewrite` adds both.
    rule_index = block.index(RULE) if RULE in block else len(block)
    commands = tuple(line for line in block[:rule_index] if not line.startswith("#"))
    if not commands:
        raise NotATranscript(f"a step without a command: {block[0]!r}")
    return Step(
        comments=tuple(line for line in block[:rule_index] if line.startswith("#")),
        commands=commands,
        output=tuple(block[rule_index + 1 :]),
    )
