"""Charts: a section's parts, and the pictures that are not lanes on the time axis.

Reading order: `chart` (a section's parts), `chart_specs` and `javascript` (to HTML), `log_axis`,
`strips`, `fault_strips`, `chain_order`, `comparison_chart`.
"""
