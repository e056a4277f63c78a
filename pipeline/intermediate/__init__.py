"""Steps that several tables share, and that no reader sees.

Reading order: `groups`, `lives` (deaths, pauses, cuts), `exchanges` (requests and answers), `gaps`,
`repeats` (records processed again).
"""
