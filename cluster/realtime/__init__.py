"""The common part of the runtimes in real time, such as Hosts on an asyncio loop and TCP links.

The runtimes in `cluster.local` and `cluster.ray` use it: there, time is not simulated, and nodes
really wait, send over TCP and write to files.

Reading order:
1. `clock` has one time line for all processes. `host` is the Host in real time, `tcp` has the links
   between processes.
2. `process` hosts nodes in one operating-system process. It uses `failures` (failures of this
   program itself) and `listening` (addresses of brokers' listeners for Kafka clients).
3. `services` controls such a process from outside, and one machine. `machine_processes` has the
   signals and files of a machine.
4. `listeners_file` and `outside_client` are for a client in another process.
5. `runtime` has RealtimeRuntime.
"""
