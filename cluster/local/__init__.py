"""The local runtime: every node in one process, on one asyncio loop, in real time.

It needs neither Ray nor Java and is up in well under a second. Nodes, hosts, links, disks and
faults are those of every runtime in real time (`cluster.realtime`); what a kill or a stop does to a
process is done to one node of many. The work of one node holds up all others, so that times are
Ray's to measure.

Reading order: `disks` (files that end with their node), `lives`, `runtime`.
"""
