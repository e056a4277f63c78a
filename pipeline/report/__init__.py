"""Reports: one run, or a comparison of several, as one HTML file that opens offline.

`build.build_report(directory, facts)` writes the report of one run, `<run>/report.html`. It does
not read the trace of the run, but the tables that the analysis of the run has written. It does not
import Spark. The contents of the run's JSON files come as `facts.RunFacts`.

Reading order:

1. Inputs: `facts` and `report_input`; `run_names`.
2. Building blocks: `charts`, `columns` (columns of tables and tooltips) and `lanes` (charts on a
   shared time axis).
3. Words: `templates` (all words and markup), `rendering` (calls the templates) and `sentences`
   (facts for the templates).
4. Pages: `sections` (one module per section), `two_designs` (groups on ZooKeeper compared with
   groups that have a coordinator), `build` (order of the sections), `page` (sections to HTML),
   `comparison_page` with `deploy_comparison`.

In `assets`, the files `report.js`, `time_axis.js` and `navigation.js` form one script, in this
order.
"""
