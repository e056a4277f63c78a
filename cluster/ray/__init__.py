"""The Ray runtime: node processes as actors, on one or more machines; faults kill real processes.

Ray is a framework that starts processes on several machines and calls objects in them (actors).

Reading order:
1. `layout` divides a cluster's nodes among processes, and the processes among machines.
2. `environment` sets Ray's environment variables. `actors` is the only module for nodes that
   imports ray; the classes of its actors are in `cluster.realtime.services`.
3. `session_guard` and `leavings` remove what a Ray leaves if its driver was killed.
4. `control_plane` sends link rules and addresses to every process. `machine_watch` decides which
   machines are silent or lost.
5. `fleet` has the processes and machines of a run, `lives` the nodes. `runtime` puts all together.
6. `tasks` is independent of nodes: it does the work of `cluster.fan_out` on Ray.
"""
