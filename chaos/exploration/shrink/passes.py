"""The passes of shrinking, and their order.

Shrinking makes an experiment smaller, as long as it still fails (its run has the same violation).
A pass is a generator that makes an experiment smaller in one way, for example with fewer brokers.
It yields a smaller experiment (a candidate). The shrinker plays the candidate, and sends True if
the candidate still fails. The pass then continues with the smaller experiment:

    candidate = with_fault(current, index, gentler)
    if (yield candidate):
        current = candidate

Most passes are built from three generators of `steps`: `fewer` leaves out items of a list, `least`
looks for the smallest number with which the experiment fails, and `least_with_room` adds a reserve
to this number.

Large steps come first. A candidate without half of the plan costs one run, and so does a candidate
without a single fault.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from chaos.experiment.structs import Experiment, FaultDefinition, duration_of, microseconds
from chaos.exploration.shrink.edits import (
    moved,
    subset,
    with_brokers,
    with_fault,
    without_dangling_references,
    written_end,
)
from chaos.exploration.shrink.settings import (
    differing_settings,
    unusual_settings,
    with_defaults,
    with_values_of,
)
from chaos.exploration.shrink.steps import (
    Steps,
    below,
    fault_field,
    fewer,
    group_field,
    late_field,
    least,
    least_with_room,
    topic_field,
)
from chaos.faults.registry import FAULT_KINDS
from chaos.run.plan import ends_of
from chaos.targets.registry import split_target

T = TypeVar("T")

FIRST_AT_US = 1_000_000
"""Earliest time at which a plan begins. So a run shows the undisturbed cluster for a second."""
MANY_FAULTS = 24
"""If a plan has more faults than this, large parts of the plan are left out first."""
PARTS = 8
"""Number of parts into which a plan with more than MANY_FAULTS is divided to leave them out."""
ROUND_US = (1_000_000, 500_000, 100_000)
"""Steps to which times are rounded, coarsest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkPass:
    """One way to make an experiment smaller.

    - `does`: a description, for the live display.
    - `steps`: a function that takes an experiment, and returns the generator of its candidates.
    """

    does: str
    steps: Callable[[Experiment], Steps]


# -- parts: faults, groups, members, brokers, partitions -----------------------------------------


def cut_off(after_us: int) -> ShrinkPass:
    """Return the pass that leaves out all faults that are injected later than `after_us`."""

    def steps(current: Experiment) -> Steps:
        faults = tuple(fault for fault in current.faults if microseconds(fault.at) <= after_us)
        if len(faults) < len(current.faults):
            yield replace(current, faults=faults)

    return ShrinkPass(does="leaving out the faults that came later", steps=steps)


def _far_fewer_faults(current: Experiment) -> Steps:
    """Leave out large parts of a long plan; later passes handle the rest."""
    if len(current.faults) > MANY_FAULTS:
        size = len(current.faults) // PARTS
        yield from fewer(current, current.faults, _with_faults, at_once=size)


def _fewer_faults(current: Experiment) -> Steps:
    """Leave out faults, and repetitions of the faults that remain."""
    current = yield from fewer(current, current.faults, _with_faults)
    # The loop replaces `current` by experiments with the same number of faults. So each fault keeps
    # its index. This is so in the loops of later passes, too.
    for index, fault in enumerate(current.faults):
        if fault.repeat is None or fault.repeat == 1:
            continue
        once = with_fault(current, index, replace(fault, repeat=None, every=None))
        if (yield once):
            current = once
        else:
            rest = range(2, fault.repeat)
            current = yield from least(current, rest, fault_field(index, "repeat"))


def _with_faults(current: Experiment, faults: tuple[FaultDefinition, ...]) -> Experiment:
    return replace(current, faults=faults)


def _fewer_groups(current: Experiment) -> Steps:
    """Leave out groups, then producers, then the records that `__consumer_offsets` has at first."""
    current = yield from fewer(
        current,
        tuple(current.groups),
        lambda now, kept: without_dangling_references(
            replace(now, groups=subset(now.groups, kept))
        ),
    )
    current = yield from fewer(
        current,
        current.producers,
        lambda now, kept: without_dangling_references(replace(now, producers=kept)),
    )
    yield from fewer(current, current.offsets_log, lambda now, kept: replace(now, offsets_log=kept))


def _fewer_members_of_many(current: Experiment) -> Steps:
    """If the plan is still long, leave out members before single faults.

    To leave out single faults costs a run for each fault. These runs are cheaper with fewer
    members. If the plan is short, this does not matter, and the members are left out later.
    """
    if len(current.faults) > 2 * PARTS:
        yield from _fewer_members(current)


def _fewer_members(current: Experiment) -> Steps:
    """Leave out members of each group, and topics that it reads."""
    for name in current.groups:
        late_members = current.groups[name].late_members
        current = yield from fewer(current, late_members, group_field(name, "late_members"))
        for index, late in enumerate(current.groups[name].late_members):
            counts = range(1, late.members)
            current = yield from least(current, counts, late_field(name, index, "members"))
        counts = range(1, current.groups[name].members)
        current = yield from least(current, counts, group_field(name, "members"))
        spare = range(current.groups[name].spare_members)
        current = yield from least(current, spare, group_field(name, "spare_members"))
        topics = current.groups[name].topics
        if len(topics) > 1:
            current = yield from fewer(current, topics, group_field(name, "topics"))


def _fewer_brokers(current: Experiment) -> Steps:
    yield from least(current, range(1, current.cluster.brokers), with_brokers)


def _fewer_partitions(current: Experiment) -> Steps:
    """Leave out partitions of each topic, and of `__consumer_offsets`."""
    for name, topic in current.topics.items():
        counts = range(1, topic.partitions)
        current = yield from least(current, counts, topic_field(name, "partitions"))
    counts = range(1, current.cluster.config.offsets_topic_num_partitions)
    yield from least(current, counts, _with_offsets_partitions)


def _with_offsets_partitions(current: Experiment, count: int) -> Experiment:
    cluster = current.cluster
    config = replace(cluster.config, offsets_topic_num_partitions=count)
    return replace(current, cluster=replace(cluster, config=config))


# -- simplifications: roles, times, settings, weaker faults ---------------------------------------


def _by_role(current: Experiment) -> Steps:
    """Replace targets such as `broker(2)` by `coordinator-of(GROUP)`, which tells people more."""
    for index, fault in enumerate(current.faults):
        for group_id in current.groups:
            aimed = _aimed_at(fault, f"coordinator-of({group_id})")
            candidate = with_fault(current, index, aimed)
            # If no target of the fault is a single broker, the fault does not change, and a run is
            # not necessary.
            if aimed != fault and (yield candidate):
                current = candidate
                break


def _aimed_at(fault: FaultDefinition, target_role: str) -> FaultDefinition:
    """Return `fault` with `target_role` in place of each target that is a single broker.

    This changes the target of the fault. In a fault of links it changes the end `from`, but not the
    end `to`.
    """

    def change(target: str) -> str:
        # `or ("", "")` is only for the type checker: in a valid experiment every target has a role.
        role = (split_target(target) or ("", ""))[0]
        is_one_broker = role in {"broker", "any-broker", "leader-of", "follower-of"}
        return target_role if is_one_broker else target

    return replace(
        fault,
        target=None if fault.target is None else change(fault.target),
        # Several brokers may be replaced by the same role, so repetitions are dropped.
        from_=written_end(tuple(dict.fromkeys(map(change, ends_of(fault.from_))))),
    )


def _sooner(current: Experiment) -> Steps:
    """Let the whole plan begin earlier, and then make the gaps between its faults shorter.

    At last, let the late members of each group start earlier.
    """
    order = sorted(
        range(len(current.faults)), key=lambda index: microseconds(current.faults[index].at)
    )
    if order:
        first_us = microseconds(current.faults[order[0]].at)
        sooner = tuple(at_us for at_us in below(first_us) if at_us >= FIRST_AT_US)
        current = yield from least(current, sooner, _beginning_at(order))
    for position in range(1, len(order)):
        before, later = order[position - 1], order[position:]
        gap_us = _gap_us(current, before, later[0])
        current = yield from least(current, below(gap_us), _gap_before(before, later))
    for name, group in current.groups.items():
        for index, late in enumerate(group.late_members):
            sooner = below(microseconds(late.at))
            current = yield from least(current, sooner, late_field(name, index, "at", duration_of))


def _beginning_at(order: Sequence[int]) -> Callable[[Experiment, int], Experiment]:
    """Return the edit that lets the whole plan begin at another time, and keeps all gaps.

    `order` has the indexes of the faults, in the order of time.
    """
    return lambda now, at_us: moved(now, microseconds(now.faults[order[0]].at) - at_us, order)


def _gap_us(current: Experiment, first: int, second: int) -> int:
    return microseconds(current.faults[second].at) - microseconds(current.faults[first].at)


def _gap_before(first: int, later: Sequence[int]) -> Callable[[Experiment, int], Experiment]:
    """Return the edit that changes the gap between the fault `first` and the first of `later`.

    All faults of `later` are moved together.
    """
    return lambda now, gap_us: moved(now, _gap_us(now, first, later[0]) - gap_us, later)


def _shorter(current: Experiment) -> Steps:
    """Shorten the durations of faults, and the time after the last fault.

    Each is shortened to the shortest time with which the experiment fails, plus a reserve.
    """
    for index, fault in enumerate(current.faults):
        if fault.duration is not None:
            edit = fault_field(index, "duration", duration_of)
            current = yield from least_with_room(current, microseconds(fault.duration), edit)
    yield from least_with_room(
        current, microseconds(current.run.after_faults), _with_time_after_faults
    )


def _shorter_operations(current: Experiment) -> Steps:
    """Shorten the lengths of time among the arguments of rollouts and scalings.

    An argument may be a range, such as `start_up: [1s, 2s]`. This is first replaced by its shortest
    length, here 1s.
    """
    for index, fault in enumerate(current.faults):
        if fault.fault not in FAULT_KINDS or not FAULT_KINDS[fault.fault].is_gradual:
            continue
        for name, written in fault.args.items():
            if isinstance(written, list | tuple):  # a range
                candidate = _with_argument(index, name)(current, microseconds(written[0]))
                if (yield candidate):
                    current = candidate
            # The argument is read again, because the candidate above may have changed it.
            length_us = _length_us(current.faults[index].args[name])
            if length_us is not None:
                edit = _with_argument(index, name)
                current = yield from least_with_room(current, length_us, edit)


def _length_us(written: object) -> int | None:
    """Return the microseconds of an argument that is a length of time; None for others."""
    if isinstance(written, str):
        with suppress(ValueError):  # the text is no length, such as `hang`
            return microseconds(written)
    return None


def _with_argument(index: int, name: str) -> Callable[[Experiment, int], Experiment]:
    """Return the edit of one length among the arguments of a fault."""

    def edit(now: Experiment, length_us: int) -> Experiment:
        fault = now.faults[index]
        args = {**fault.args, name: duration_of(length_us)}
        return with_fault(now, index, replace(fault, args=args))

    return edit


def _with_time_after_faults(current: Experiment, after_us: int) -> Experiment:
    return replace(current, run=replace(current.run, after_faults=duration_of(after_us)))


def _settings(base: Experiment | None) -> ShrinkPass:
    """Return the pass that resets settings to their defaults, or else to the values of `base`.

    `base` is the experiment of the space; None if it is not known.
    """

    def steps(current: Experiment) -> Steps:
        # The edits below get the experiment (`now`), and the settings that are to keep their values
        # (`kept`). They change all other settings. The settings are looked up in `now` anew,
        # because an earlier candidate may have changed some of them.
        current = yield from fewer(
            current,
            unusual_settings(current),
            lambda now, kept: with_defaults(now, _removed(unusual_settings(now), kept)),
        )
        if base is not None:
            yield from fewer(
                current,
                differing_settings(current, base),
                lambda now, kept: with_values_of(
                    now, _removed(differing_settings(now, base), kept), base
                ),
            )

    return ShrinkPass(does="putting settings back to their defaults", steps=steps)


def _removed(places: Sequence[T], kept: Sequence[T]) -> tuple[T, ...]:
    return tuple(place for place in places if place not in kept)


def _weaker(current: Experiment) -> Steps:
    """Try to weaken each fault: by fewer targets at its ends, a gentler kind, fewer arguments."""
    for index in range(len(current.faults)):
        for end in ("from_", "to"):
            several = ends_of(getattr(current.faults[index], end))
            if len(several) > 1:
                edit = fault_field(index, end, written_end)
                current = yield from fewer(current, several, edit)
        for gentler in _gentler(current.faults[index], current):
            candidate = with_fault(current, index, gentler)
            if (yield candidate):
                current = candidate
                break
        args = current.faults[index].args
        edit = fault_field(index, "args", _only(args))
        current = yield from fewer(current, tuple(args), edit)


def _only(args: dict[str, T]) -> Callable[[Sequence[str]], dict[str, T]]:
    """Return a function that takes the names of the arguments to keep, and returns these."""
    return lambda kept: subset(args, kept)


_GENTLER = {"node_loss": ("crash",), "power_loss": ("crash",), "lost_disk": ("power_loss", "crash")}
"""For some kinds of faults, the kinds that do less to a node. The gentlest kind is the last."""


def _gentler(fault: FaultDefinition, experiment: Experiment) -> Iterator[FaultDefinition]:
    """Yield faults that do less than `fault`: a gentler kind, or fewer nodes at one end."""
    for name in _GENTLER.get(fault.fault, ()):
        yield replace(fault, fault=name, args={})
    for node in _narrower_ends(ends_of(fault.from_), experiment):
        yield replace(fault, from_=node)
    for node in _narrower_ends(ends_of(fault.to), experiment):
        yield replace(fault, to=node)


def _narrower_ends(targets: Sequence[str], experiment: Experiment) -> Iterator[str]:
    """Yield smaller targets that can replace an end of links.

    - For the target `brokers` these are the single brokers.
    - For all members of a group these are the single members.
    - For `clients` these are the members of each group.
    """
    # Only an end with a single target can become narrower here. For any other end the role is "",
    # and the function yields nothing.
    role, group_id = (split_target(targets[0]) if len(targets) == 1 else None) or ("", "")
    if role == "brokers":
        yield from (f"broker({broker})" for broker in range(experiment.cluster.brokers))
    elif role == "members":
        members = experiment.groups[group_id].members
        yield from (f"member({group_id}, {index})" for index in range(members))
    elif role == "clients":
        yield from (f"members({group_id})" for group_id in experiment.groups)


def _rounder(current: Experiment) -> Steps:
    """Sort the faults by time, and round their times and durations.

    They are rounded to seconds, or else to half seconds, or else to tenths of a second.
    """
    in_order = tuple(sorted(current.faults, key=lambda fault: microseconds(fault.at)))
    if in_order != current.faults:
        candidate = replace(current, faults=in_order)
        if (yield candidate):
            current = candidate
    for index in range(len(current.faults)):
        for field in ("at", "duration"):
            written = getattr(current.faults[index], field)
            if written is None:
                continue
            for rounded in _roundings(microseconds(written)):
                changed = replace(current.faults[index], **{field: rounded})
                candidate = with_fault(current, index, changed)
                if (yield candidate):
                    current = candidate
                    break


def _roundings(time_us: int) -> Iterator[str]:
    """Yield the roundings of a time, the best first.

    For each step of ROUND_US these are the multiples below and above the time, the nearer first.
    """
    for step_us in ROUND_US:
        if time_us % step_us == 0:
            return  # the time is a multiple of this step already, so finer steps would not help
        below_us = time_us // step_us * step_us
        nearest = sorted(
            (below_us, below_us + step_us), key=lambda rounded_us: abs(rounded_us - time_us)
        )
        yield from (duration_of(rounded_us) for rounded_us in nearest if rounded_us > 0)


_GROUPS = ShrinkPass(does="leaving out groups and producers", steps=_fewer_groups)
FAULTS = ShrinkPass(does="leaving out faults", steps=_fewer_faults)
STRUCTURE = (
    _GROUPS,
    ShrinkPass(does="leaving out large parts of the plan", steps=_far_fewer_faults),
    _GROUPS,
    ShrinkPass(does="leaving out members", steps=_fewer_members_of_many),
    FAULTS,
    ShrinkPass(does="leaving out members", steps=_fewer_members),
    ShrinkPass(does="leaving out brokers", steps=_fewer_brokers),
    ShrinkPass(does="leaving out partitions", steps=_fewer_partitions),
)
"""Passes that leave parts out.

Groups and producers are left out before faults. If there are many faults, members are, too. These
passes cost few runs, and make all later runs shorter. They are repeated when the plan is smaller.
Then fewer faults have groups and members as targets, so perhaps more of them can be left out. The
repetition costs little, because the shrinker does not run the same candidate twice.
"""


def wording(base: Experiment | None) -> tuple[ShrinkPass, ...]:
    """Return the passes that simplify without leaving parts out.

    `base` is the experiment of the space from which the plan was drawn; None if it is not known.
    """
    return (
        ShrinkPass(does="aiming at roles", steps=_by_role),
        ShrinkPass(does="moving the plan to its beginning", steps=_sooner),
        ShrinkPass(does="shortening durations", steps=_shorter),
        ShrinkPass(does="shortening rollouts", steps=_shorter_operations),
        _settings(base),
        ShrinkPass(does="weakening faults", steps=_weaker),
        ShrinkPass(does="rounding times", steps=_rounder),
    )
