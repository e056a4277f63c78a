"""One run, or a few, as one HTML file that opens offline: what broke, for whom, how long, why.

Public: `build.build_report(directory, facts)`, which writes `<run>/report.html`. It reads the
tables that Spark wrote, never events, and imports neither Spark nor anything of the lab but the
protocol; what stands in the run's JSON files comes in as `facts.RunFacts`.

Reading order: `facts`, `run_tables`, `report_input` (what goes in), `chart` (what a section is made
of), then the first screen (`headline`, `headline_figures`, `fault_sentences`, `answers`, `causes`),
one module a section, `build` (which sections, in what order), and `page`, `chart_specs` and
`javascript` (sections to HTML) with the files in `assets`: `report.js`, `time_axis.js` and
`navigation.js` are one script, in this order.
"""
