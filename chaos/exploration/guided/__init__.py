"""Guided search: plans that reached something rare are kept, and mutated instead of drawn.

A mutated seed is a function of its lineage (the seeds from the first, drawn one to its own), the
lineage one of the results of the blocks of seeds before: the same seeds give the same plans,
whatever worker plays them, in whatever order, in one go or after a resume.

Reading order: `genome` (a plan and what it came from), `mutation` (one step), `lineage` (all
steps), `coverage` (marks and pairs of marks), `corpus` (the plans that are kept), `guidance` (which
seed is mutated, and from what), `report`.
"""
