"""The first screen's answer to what broke: each fault of the plan as a sentence."""

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.markup import (
    FAULTS,
    and_list,
    at_moment,
    between,
    fill_sentence,
    joined,
    section_link,
)
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order, listed
from pipeline.summary.story import counted
from results_schema.journal import FaultOutcome, JournalEntry

MAX_FAULTS = 3
"""So many faults are told one by one; the fault lane has them all."""
MAX_NODES = 4
"""So many nodes are named one by one."""
_SERVERS = ("broker-", "controller-")
"""How the names of nodes begin that are no clients."""


def what_broke(run: ReportInput) -> tuple[Markup, ...]:
    """Say what was injected, into whom, when, and when it was undone."""
    faults = run.facts.faults
    if not faults:
        return (Markup("Nothing: this run has no faults."),)
    told = [_fault(fault, run) for fault in faults[:MAX_FAULTS]]
    if len(faults) > MAX_FAULTS:
        more = counted(len(faults) - MAX_FAULTS, "more fault")
        told.append(fill_sentence("And {}: {}.", more, section_link(FAULTS, "the fault lane")))
    return tuple(told)


def _fault(fault: JournalEntry, run: ReportInput) -> Markup:
    name = fault.fault.replace("_", " ")
    aim = fill_sentence("<b>{}</b> of {}", name, fault.target)
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return fill_sentence("{} was never injected.", aim)
        case FaultOutcome.MISSED:
            return fill_sentence(
                "{} <b>hit nothing</b>: {}.", aim, fault.error or "no reason is known"
            )
        case FaultOutcome.FAILED:
            return fill_sentence(
                "coordlab could not inject {}: {}.", aim, fault.error or "no reason known"
            )
        case _ if fault.injected_at_us is None:
            return fill_sentence("{} hit {}.", aim, fault.hit)
        case _:
            pass
    sentence = _happened(fault, fault.injected_at_us or 0, run)
    return joined((sentence, fault.note + ".")) if fault.note else sentence


def _happened(fault: JournalEntry, injected_us: int, run: ReportInput) -> Markup:
    """Return the sentence of one fault that hit."""
    who, when = _who(fault), at_moment(injected_us)
    lasted, for_long = between(injected_us, fault.healed_at_us, run.end_us), _for(fault, run)
    groups = listed(fault.blast_radius.groups)
    ends = (_nodes(fault.from_nodes), _nodes(fault.to_nodes))
    match fault.fault:
        case "crash":
            return fill_sentence("{} was killed (kill -9) {}{}.", who, when, _again(fault, run))
        case "power_loss":
            return fill_sentence("{} lost its power {}{}.", who, when, _again(fault, run))
        case "controlled_shutdown":
            again = _again(fault, run)
            return fill_sentence("{} was shut down (controlled shutdown) {}{}.", who, when, again)
        case "node_loss":
            return fill_sentence("{} was killed {} and never started again.", who, when)
        case "pause":
            return fill_sentence("{} was stopped (SIGSTOP) {}{}.", who, lasted, for_long)
        case "leadership_move":
            return fill_sentence(
                "Leadership was moved {}, while all lived: {}.", when, _moves(fault)
            )
        case "preferred_leader_election":
            return fill_sentence("A preferred leader election {} moved {}.", when, _moves(fault))
        case "remove_members":
            return fill_sentence(
                "The members of {} were taken out {} by an administrator.", groups, when
            )
        case "delete_group":
            return fill_sentence("{} was deleted {} by an administrator.", groups, when)
        case "delete_offsets":
            return fill_sentence(
                "Committed offsets of {} were deleted {} by an administrator.", groups, when
            )
        case "reset_offsets":
            return fill_sentence(
                "Committed offsets of {} were reset {} by an administrator.", groups, when
            )
        case "cut" if not fault.is_one_way:
            others = _but_not_clients(fault, ends[1])
            return fill_sentence("{} was cut off from {} {}{}.", who, others, lasted, for_long)
        case "cut":
            return fill_sentence(
                "What {} sent to {} was cut off {}{}.", who, ends[1], lasted, for_long
            )
        case "clog":
            return fill_sentence(
                "Messages between {} and {} were held back {}{}.", *ends, lasted, for_long
            )
        case "slow":
            return fill_sentence(
                "The links between {} and {} were slow {}{}.", *ends, lasted, for_long
            )
        case "response_loss":
            return fill_sentence(
                "Connections between {} and {} were reset in the place of a response {}{}.",
                *ends,
                lasted,
                for_long,
            )
        case "reset":
            return fill_sentence("The connections between {} and {} were reset {}.", *ends, when)
        case other:
            return fill_sentence("{} hit {} {}{}.", other.replace("_", " "), who, lasted, for_long)


def _who(fault: JournalEntry) -> Markup:
    """Name what was hit, and what it was to a group."""
    nodes = fault.from_nodes or fault.hit_nodes
    names = fill_sentence("<b>{}</b>", _nodes(nodes) if nodes else fault.hit)
    if not fault.blast_radius.groups or len(nodes) != 1:
        return names
    groups = listed(fault.blast_radius.groups)
    if nodes[0].startswith("broker-"):
        return fill_sentence("{}, the coordinator of {},", names, groups)
    if is_client(nodes[0]):
        return fill_sentence("{}, a member of {},", names, groups)
    return names


def _nodes(nodes: Sequence[str]) -> Markup:
    """Name nodes: each of a few, runs of many."""
    if len(nodes) <= MAX_NODES:
        return and_list(in_number_order(nodes)) or Markup("nobody")
    return fill_sentence("{}", listed(nodes))


def _moves(fault: JournalEntry) -> str:
    """Return the leaderships that moved, such as `orders-1 from broker-2 to broker-0`."""
    return fault.moves_text("{0.partition} from broker-{0.from_broker} to broker-{0.to_broker}")


def is_client(node: str) -> bool:
    """Whether a node is a member of a group, by its name in the trace."""
    return node.startswith("consumer-")


def _but_not_clients(fault: JournalEntry, others: Markup) -> Markup:
    """Name what a server was cut off from; that its clients still reach it makes split brains."""
    ends = (*fault.from_nodes, *fault.to_nodes)
    if all(node.startswith(_SERVERS) for node in ends):
        return fill_sentence("{}, not from clients,", others)
    return others


def _again(fault: JournalEntry, run: ReportInput) -> Markup:
    if fault.healed_at_us is None or fault.injected_at_us is None:
        return Markup(" and did not start again")
    if fault.healed_by == "end":
        return fill_sentence(" and was down until {}", _end(run))
    after_us = fault.healed_at_us - fault.injected_at_us
    return fill_sentence(" and started again {} later", duration_text(after_us))


def _for(fault: JournalEntry, run: ReportInput) -> Markup:
    if fault.healed_at_us is None or fault.injected_at_us is None:
        return Markup("")
    until = f", until {_end(run)}" if fault.healed_by == "end" else ""
    return fill_sentence(" ({}{})", duration_text(fault.healed_at_us - fault.injected_at_us), until)


def _end(run: ReportInput) -> str:
    return "the run was cut off" if run.cut_off else "the end of the run"
