"""Choices: what a seed draws from a space file, and where the drawn values are written.

A space file may contain this:

    settings:
      cluster.brokers: [3, 5]
      groups.*.config.session.timeout.ms: [10000, 45000]

The first line of `settings` is a choice with two options. A seed draws 3 or 5. The number is
written into a copy of the base experiment (the space's experiment without faults), at the place
`cluster.brokers`. In the second line the star stands for every group. The seed draws an option for
each group.

The space file has three sections of choices:

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
"""The keys of mappings and the indexes of lists that lead to a place in a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A path in a space file, and the steps to its place in the document of the experiment.

    A path may have one star, such as `groups.*.members`. In the steps of this path the name of the
    first group takes the place of the star: ("groups", "orders", "members"). `star` is the index of
    this name among the steps, here 1. If the path has no star, `star` is None.
    """

    path: str
    steps: Steps
    star: int | None = None

    def places(self, root: Item) -> Iterator[Steps]:
        """Yield the places in `root` to which the path leads.

        With a star there is one place for each key or element for which the star stands.
        """
        if self.star is None:
            yield self.steps
            return
        within = _at(root, self.steps[: self.star])
        keys = within.value if isinstance(within.value, dict) else range(len(within.children()))
        for key in keys:
            yield (*self.steps[: self.star], key, *self.steps[self.star + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOf:
    """A value of an option in the section `counts`: only the first `count` items are kept."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of a space. Each seed chooses one of its options.

    If the spots have a star, the seed chooses anew for each key for which the star stands.

    - `where`: the choice's place in the space's file, for messages. For the example at the top of
      this file it is "settings.cluster.brokers[{}]", in which `{}` stands for the index of an
      option.
    - `spots`: the places to which an option is written. A choice of `together` may have several
      spots, and all other choices have one.
    - `options`: the options, each as a tuple with one value for each spot. In the example these are
      ((3,), (5,)). If a value is None, the experiment is left without this key.
    """

    where: str
    spots: tuple[Spot, ...]
    options: tuple[tuple[object, ...], ...]

    def at(self, index: int) -> str:
        """Return the place of an option in the space's file."""
        return self.where.format(index)


def choices_of(definition: SpaceDefinition, base: Item) -> tuple[tuple[Choice, ...], list[Problem]]:
    """Return all choices of a space, and all problems that were found.

    The choices have the order in which a draw makes them. The path of each problem is a place in
    the space's file.
    """
    choices: list[Choice] = []
    problems: list[Problem] = []
    # The counts come first, because they may remove items. The stars of later choices must stand
    # only for the items that are left.
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
        # In an f-string `{{}}` gives `{}`, in which `Choice.at` puts the index of an option.
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

    If the spots have a star, the option is written at the place of every key for which the star
    stands. With `key`, it is written only at the place of this key.
    """
    for spot, value in zip(choice.spots, choice.options[index], strict=True):
        # `places` iterates over the keys of the document, and `_put` changes the document. So all
        # places are put into a tuple before the first change.
        for steps in tuple(spot.places(root)):
            if key is None or spot.star is None or steps[spot.star] == key:
                _put(root, steps, value)


def keys_of(choice: Choice, root: Item) -> tuple[str | int | None, ...]:
    """Return the keys in `root` for which the choice's star stands.

    A seed draws an option for each of these keys. A choice without a star has the single key None.
    """
    spot = choice.spots[0]  # all spots of a choice have the same star
    if spot.star is None:
        return (None,)
    return tuple(steps[spot.star] for steps in spot.places(root))


def copy_of(item: Item) -> Item:
    """Return a deep copy of a document, so that a draw can change every part of it."""
    # The checks of a space copy its document thousands of times. So the constructor of Item is
    # called directly, because `dataclasses.replace` would take five times as long.
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
    """Return the choice that the entry `name` of the section `together` describes.

    An entry is a list of mappings from paths to values (`sets`):

        quick: [{a.b: 1, a.c: 2}, {a.b: 5, a.c: 9}]

    Each mapping is an option. All mappings must have the same paths.

    If the entry is wrong, its problems are added to `problems`. The caller must not use the result
    then.
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

    # If the paths have a star, a seed draws an option for each key for which the star stands. The
    # option is written to all paths, with this key in place of the star. So the star must have the
    # same place in all paths.
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
        # `get` returns None for a missing path. This None is never used, because the space is
        # refused with the problem that was added above.
        options.append(tuple(values.get(path) for path in paths))
    return Choice(where=here + "[{}]", spots=tuple(spots), options=tuple(options))


def _spot(path: str, base: Item, here: str) -> Spot | Problem:
    """Return the spot of `path` in the experiment's document, or the problem of a wrong path.

    `here` is the place in the space's file at which the path is written. A problem names this
    place.
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
    # To resolve the rest of the path, the first key takes the place of the star. In a list this is
    # the index 0.
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
    """Yield a problem for each count that is too small or too large.

    A count must not be larger than the number of items in the list or mapping `within`.
    """
    parts = len(within.children())
    # Every draw of a fault first draws a group. So at least one group must be left, but any other
    # list or mapping may become empty.
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
    """Return an option as text for people: its value, or its place in the file.

    An option with several values is shown by its place, because its values would be too long.
    """
    option = choice.options[index]
    if len(option) > 1:
        return choice.at(index)
    value = option[0]
    return str(value.count) if isinstance(value, FirstOf) else show(value)


def _at(root: Item, steps: Steps) -> Item:
    """Return the item to which `steps` lead from `root`."""
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
        # If the file has a key without a value, such as `config:`, the value is None here. Then it
        # becomes a mapping.
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
