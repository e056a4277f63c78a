"""The Ray runtime: node processes as actors, spread over machines, that can really be killed.

Reading order: `layout` (which nodes share a process, and where), `services` (the classes inside the
actors), `actors` (the only module that imports ray for nodes), `environment`, `control` (rules and
addresses for every process), `fleet`, `lives`, `runtime`; `machine_files` (signals and files of one
machine); `fan_out` and `tasks` (work shared out to workers).
"""
