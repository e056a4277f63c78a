"""The local runtime: every node in one process, on one asyncio loop, in real time.

It needs neither Ray nor Java, and starts in well under a second. Nodes, hosts, links, disks and
faults are those of every runtime in real time (`cluster.realtime`). A kill or a pause here hits one
of many nodes in the process. The nodes share one thread, so the work of one node delays all other
nodes. Times are better measured on Ray.

Reading order: `disks` (files that end with their node), `lives`, `runtime`.
"""
