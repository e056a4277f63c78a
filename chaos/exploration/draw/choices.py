"""Choices: what a seed draws from a space file, and where the drawn values are written.

A space file may contain this:

    settings:
      cluster.brokers: [3, 5]
      groups.*.config.session.timeout.ms: [10000, 45000]

The first line is a choice with two options. A seed draws 3 or 5, and writes it into the document of
the base experiment, at the place `cluster.brokers`. In the second line the star stands for every
group, and the seed draws an option for each of them. There are three sections of choices:

- `settings`, as above.
- `counts`: how many items of a list or mapping are kept, such as `groups: [1, 2]`.
- `together`: options that set several places at once.

The places of all paths are found once, when the space is read. So a draw only has to write values.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from chaos.experiment.problems import Problem
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.schema_errors import shape_problems, show
from chaos.experiment.struct_walk import resolve_path
from chaos.experiment.structs import Experiment
from chaos.experiment.yaml_document import Item, item_of
from chaos.exploration.space_definition import SpaceDefinition

STAR = "*"

Steps = tuple[str | int, ...]
"""The way to a place in a document: keys of mappings, and indexes of lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A path of the space, and the steps through the document that it means.

    `star`: the index of the star among the steps; None if the path has none. For the path
    `groups.*.members` the steps are ("groups", "orders", "members"), and `star` is 1. The name of
    the first group stands in place of the star.
    """

    path: str
    steps: Steps
    star: int | None = None

    def places(self, root: Item) -> Iterator[Steps]:
        """Yield the place of the spot in `root`; with a star, a place for each key or element."""
        if self.star is None:
            yield self.steps
            return
        within = _at(root, self.steps[: self.star])
        keys = within.value if isinstance(within.value, dict) else range(len(within.children()))
        for key in keys:
            yield (*self.steps[: self.star], key, *self.steps[self.star + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOf:
    """The value of an option of `counts`: only the first `count` items are kept."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice of a seed. If its spots have a star, the seed chooses once for each key there.

    - `where`: the choice's place in the space's file, for messages. `{}` stands for the index of an
      option: "settings.cluster.brokers[{}]".
    - `spots`: the places that get a value. Only a choice of `together` has several.
    - `options`: each is a tuple with one value for each spot. The options of `cluster.brokers`
      above are ((3,), (5,)). If a value is None, the experiment is left without this key.
    """

    where: str
    spots: tuple[Spot, ...]
    options: tuple[tuple[object, ...], ...]

    def at(self, index: int) -> str:
        """Return the place of an option in the space's file."""
        return self.where.format(index)


def choices_of(definition: SpaceDefinition, base: Item) -> tuple[tuple[Choice, ...], list[Problem]]:
    """Return all choices of a space, in the order in which a draw makes them, and all problems.

    The paths of the problems are places in the space's file.
    """
    choices: list[Choice] = []
    problems: list[Problem] = []
    # Counts come first, because the stars of later choices must stand only for the items that are
    # kept.
    for path, counts in definition.counts.items():
        here = f"counts.{path}"
        spot = _spot(path, base, here)
        if isinstance(spot, Problem):
            problems.append(spot)
            continue
        problems += _count_problems(_at(base, spot.steps), counts, here)
        options = tuple((FirstOf(count=count),) for count in counts)
        choices.append(Choice(where=here + "[{}]", spots=(spot,), options=options))

    for path, values in definition.settings.items():
        spot = _spot(path, base, f"settings.{path}")
        if isinstance(spot, Problem):
            problems.append(spot)
            continue
        options = tuple((value,) for value in values)
        choices.append(Choice(where=f"settings.{path}[{{}}]", spots=(spot,), options=options))

    for name, sets in definition.together.items():
        choice = _choice_of_sets(name, sets, base, problems)
        if choice is not None:
            choices.append(choice)

    for choice in choices:
        if not choice.options:
            place = choice.where.removesuffix("[{}]")
            problems.append(problem(place, "nothing to choose from", expected="at least one value"))
    return tuple(choices), problems


def put_option(root: Item, choice: Choice, index: int, *, key: str | int | None = None) -> None:
    """Write the option with this index into the document.

    With a star, it is written at every place, or only at that of `key` if a key is given.
    """
    for spot, value in zip(choice.spots, choice.options[index], strict=True):
        # A tuple, because `places` iterates over keys of the document, which `_put` changes.
        for steps in tuple(spot.places(root)):
            if key is None or spot.star is None or steps[spot.star] == key:
                _put(root, steps, value)


def keys_of(choice: Choice, root: Item) -> tuple[str | int | None, ...]:
    """Return the keys of the choice's star in `root`; a seed draws an option for each key.

    A choice without a star has the single key None.
    """
    spot = choice.spots[0]  # all spots of a choice have the same star
    if spot.star is None:
        return (None,)
    return tuple(steps[spot.star] for steps in spot.places(root))


def copy_of(item: Item) -> Item:
    """Return a deep copy of a document, so that a draw can change every part of it."""
    # Item's constructor is called directly, because `dataclasses.replace` takes five times as
    # long, and the checks of a space copy its document thousands of times.
    value = item.value
    if isinstance(value, dict):
        return Item(
            value={key: copy_of(child) for key, child in value.items()},
            line=item.line,
            key_lines=dict(item.key_lines),
        )
    if isinstance(value, list):
        value = [copy_of(child) for child in value]
    return Item(value=value, line=item.line, key_lines=item.key_lines)


def _choice_of_sets(
    name: str, sets: tuple[dict[str, object], ...], base: Item, problems: list[Problem]
) -> Choice | None:
    """Return the choice of one entry of `together`.

    Such an entry is a list of mappings. Each of them is an option, which sets all its paths:

        quick: [{a.b: 1, a.c: 2}, {a.b: 5, a.c: 9}]

    If the entry is wrong, its problem is added to `problems`, and the result is of no use.
    """
    here = f"together.{name}"
    paths = list(dict.fromkeys(path for values in sets for path in values))
    spots = []
    for path in paths:
        spot = _spot(path, base, here)
        if isinstance(spot, Problem):
            problems.append(spot)
            return None
        spots.append(spot)

    # With a star, a seed draws an option for each key, and writes it at this key in all paths. So
    # the star must have the same place in all of them.
    star_places = {None if spot.star is None else spot.steps[: spot.star] for spot in spots}
    if len(star_places) > 1:
        problems.append(
            problem(
                here,
                "its paths have their `*` in different places: whose value goes with whose?",
                expected="one place of `*` in all of them, or none",
                found=", ".join(f"`{path}`" for path in paths),
            )
        )
        return None

    options = []
    for index, values in enumerate(sets):
        missing = [path for path in paths if path not in values]
        if missing:
            problems.append(
                problem(f"{here}[{index}].{missing[0]}", "is missing: another set of it has it")
            )
        # `get` returns None for a missing path. This has no effect, because the problem that was
        # added above makes the space invalid.
        options.append(tuple(values.get(path) for path in paths))
    return Choice(where=here + "[{}]", spots=tuple(spots), options=tuple(options))


def _spot(path: str, base: Item, here: str) -> Spot | Problem:
    """Find a path of the space in the experiment's document; return its steps, or a problem.

    `here` is the path's place in the space's file, which a problem names.
    """
    head, star, tail = path.partition(f".{STAR}")
    if not star:
        steps = resolve_path(path, base, Experiment)
        if isinstance(steps, Problem):
            return replace(steps, file="", path=here)
        return Spot(path=path, steps=tuple(steps))

    prefix = resolve_path(head, base, Experiment)
    if isinstance(prefix, Problem):
        return replace(prefix, file="", path=here)
    within = _at(base, tuple(prefix))
    # To resolve the rest of the path, the first key or index takes the place of the star.
    first = next(iter(within.value), None) if isinstance(within.value, dict) else "0"
    if first is None or not within.children():
        return problem(
            here, f"`*` stands for nothing: `{head}` has no parts", expected=f"some in `{head}`"
        )
    steps = resolve_path(f"{head}.{first}{tail}", base, Experiment)
    if isinstance(steps, Problem):
        return replace(steps, file="", path=here)
    return Spot(path=path, steps=tuple(steps), star=len(prefix))


def _count_problems(within: Item, counts: tuple[int, ...], here: str) -> Iterator[Problem]:
    """Yield a problem for each count that is too small, or larger than the present number."""
    parts = len(within.children())
    # Every draw of a fault first draws a group, so at least one group must be kept.
    least = 1 if here == "counts.groups" else 0
    for index, count in enumerate(counts):
        if not least <= count <= parts:
            yield problem(
                f"{here}[{index}]",
                "is not allowed",
                expected=f"{least} to {parts}: so many are in the experiment",
                found=str(count),
            )


def option_problems(base: Item, choice: Choice, index: int) -> Iterator[Problem]:
    """Yield a problem for each invalid value of an option, with its place in the space's file."""
    changed = copy_of(base)
    put_option(changed, choice, index)
    for wrong in shape_problems(changed, Experiment, ""):
        yield replace(wrong, path=choice.at(index), message=f"`{wrong.path}` {wrong.message}")


def value_shown(choice: Choice, index: int) -> str:
    """Return an option as text for people."""
    option = choice.options[index]
    if len(option) > 1:
        return choice.at(index)
    value = option[0]
    return str(value.count) if isinstance(value, FirstOf) else show(value)


def _at(root: Item, steps: Steps) -> Item:
    for step in steps:
        if isinstance(root.value, list) and isinstance(step, int):
            root = root.value[step]
        else:
            root = root.child(str(step))
    return root


def _put(root: Item, steps: Steps, value: object) -> None:
    """Write one value of an option at `steps`, and add mappings that are missing on the way."""
    *way, last = steps
    for step in way:
        if isinstance(root.value, list) and isinstance(step, int):
            root = root.value[step]
            continue
        # A key of the file without a value (`config:`) is None here, and becomes a mapping.
        if not isinstance(root.value, dict):
            root.value = {}
        root = root.value.setdefault(str(step), Item(value={}))
    if isinstance(value, FirstOf):
        _keep_first(root, last, value.count)
    elif isinstance(root.value, list) and isinstance(last, int):
        root.value[last] = item_of(value)
    else:
        if not isinstance(root.value, dict):
            root.value = {}
        if value is None:
            root.value.pop(str(last), None)
        else:
            root.value[str(last)] = item_of(value)


def _keep_first(parent: Item, key: str | int, count: int) -> None:
    """Shorten the mapping or list at `key` to its first `count` entries."""
    within = _at(parent, (key,))
    if isinstance(within.value, dict):
        within.value = dict(list(within.value.items())[:count])
    elif isinstance(within.value, list):
        del within.value[count:]
