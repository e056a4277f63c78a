"""Reports: one run, or a comparison of several, as one HTML file that opens offline.

`build.build_report(directory, facts)` writes the report of one run, `<run>/report.html`. It reads
the tables that the analysis of the run has written, never the trace itself, and does not import
Spark. The contents of the run's JSON files come as `facts.RunFacts`.

Reading order: `facts` and `report_input` (inputs of a report), `run_names`; `charts`, `columns`
(columns of tables and tooltips) and `lanes` (charts on a shared time axis); `templates` (all words
and markup) and `rendering` (calls them), `sentences` (facts for the templates), `sections` (one
module per section), `two_designs` (groups on ZooKeeper compared with coordinated ones), `build`
(order of the sections), `page` (sections to HTML), `comparison_page` with `deploy_comparison`. The
files `report.js`, `time_axis.js` and `navigation.js` in `assets` form one script, in this order.
"""
