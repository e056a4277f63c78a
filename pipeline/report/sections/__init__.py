"""The sections of a report, one module each, in the order of the page.

Reading order: `headline` and `headline_figures` (the first screen), `phases` with `fault_overview`,
`felt`, `rebalances`, `two_at_once`, `violations`, `checks`, `blast_radius`, `configuration`,
`replay`.
"""
