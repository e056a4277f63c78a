"""Charts: the parts of a section, and all charts except lanes (charts on the time axis).

Reading order: `chart` (the parts of a section), `chart_specs` and `javascript` (charts in HTML),
`log_axis`, `strips`, `fault_strips`, `chain_order`, `comparison_chart`.
"""
