"""Run the notebooks as a reader does, and hold their numbers against the command's.

    check.py SAMPLES PICTURES

SAMPLES is a copy of samples/ that nothing has been written to, PICTURES the
folder of those that the documentation shows. Every cell is run in a fresh
kernel; then the kernel is asked for what the notebook found, which must be what
traceview (on the PATH) says of the same input.
"""

import json
import math
import pathlib
import subprocess
import sys

import nbclient
import nbformat

samples, pictures = map(pathlib.Path, sys.argv[1:])
folder = samples / "notebooks"
limits = "--max-num-seqs 6 --max-num-batched-tokens 512 --kv-tokens 3072".split()
spans = [str(samples / "vllm-real.jsonl"), str(samples / "vllm-real-client.jsonl")]
capture, logged = [*limits, *spans], [*spans, str(samples / "vllm-real.log.gz")]
failures = []


def same(what, got, want, within=0):
    """What the notebook has is what is wanted: numbers to within, all else exactly."""
    if isinstance(want, dict) and isinstance(got, dict) and got.keys() == want.keys():
        for key in want:
            same(f"{what}, {key}", got[key], want[key], within)
    elif isinstance(want, list) and isinstance(got, list) and len(got) == len(want):
        for i, (a, b) in enumerate(zip(got, want)):
            same(f"{what}, {i}", a, b, within)
    elif isinstance(want, (int, float)) and isinstance(got, (int, float)) and math.isclose(got, want, rel_tol=0, abs_tol=within):
        pass
    elif got != want:
        failures.append(f"{what} is {got!r}, want {want!r}")


def ask(*words, stdin=None):
    """What traceview says, as JSON."""
    return json.loads(subprocess.run(["traceview", *words], input=stdin, check=True, capture_output=True).stdout)


class Notebook:
    """A notebook that has been run, and whose kernel still knows its names."""

    def __init__(self, name, begin):
        self.nb = nbformat.read(folder / name, as_version=4)
        nbformat.validate(self.nb)
        for cell in self.nb.cells:
            if cell.cell_type == "code":
                same(f"{name}: stored outputs of {cell.id}", [cell.outputs, cell.execution_count], [[], None])
        self.client = nbclient.NotebookClient(
            self.nb, timeout=300, resources={"metadata": {"path": str(begin)}}, extra_arguments=["--log-level=ERROR"]
        )

    def __enter__(self):
        self.kernel = self.client.setup_kernel()
        self.kernel.__enter__()
        for i, cell in enumerate(self.nb.cells):
            self.client.execute_cell(cell, i)
        return self

    def __exit__(self, *error):
        return self.kernel.__exit__(*error)

    def __call__(self, expression):
        """The value of an expression, of things that JSON knows."""
        cell = nbformat.v4.new_code_cell(f"import json; print(json.dumps({expression}))")
        self.nb.cells.append(cell)
        self.client.execute_cell(cell, len(self.nb.cells) - 1)
        return json.loads("".join(o.text for o in cell.outputs if o.name == "stdout"))


COLUMNS = {"arrival|completion": "frontend", "queueing|prefill": "queueing_prefill", "prefill|decode": "prefill_decode"}


def by_phase(report, key):
    return {COLUMNS.get(p["name"], p["name"]): p[key] for p in report["phases"]}


def by_cause(rows, key):
    return {c["cause"]: c[key] for c in rows if c[key]}


def cells(waiting):
    """The matrix, without what is nothing."""
    return [[m["waiter"], m["holder"] or None, m["cause"], m["ns"]] for m in waiting["matrix"]]


def first_look():
    report = ask("report", "--by", "tenant", "--format", "json", *capture)
    waiting = ask("waiting", "--by", "tenant", "--format", "json", *capture)
    with Notebook("1-first-look.ipynb", samples.parent) as nb:
        same("outcomes", nb("outcomes.to_dict()"), {o["name"]: o["requests"] for o in report["counts"]["outcomes"] if o["requests"]})
        same("total by phase", nb("{k.removesuffix('_ns'): int(v) for k, v in total[where['requests_that_tell'] > 0].items()}"),
             by_phase(report, "total_ns") | {"unattributed": 0})
        for column, figure in ("ttft_ns", "ttft"), ("e2e_ns", "e2e"), ("queueing_ns", "queueing"):
            d = next(d for d in report["figures"] + report["phases"] if d["name"] == figure)
            same(f"quantiles of {figure}", nb(f"list(figures['{column}'])"), [q["ns"] for q in d["quantiles"] if q["q"] in (0.5, 0.9, 0.99)], 0.51)
        same("waiting by tenant", nb("{str(k): int(v) for k, v in by_tenant['waiting_ns'].dropna().items()}"),
             {g["values"][0] or "<NA>": g["waiting_all_ns"] for g in report["groups"][0]["rows"]})
        charged = {}
        for waiter, holder, cause, ns in cells(waiting):
            if holder:
                charged[holder.replace("(none)", "<NA>")] = charged.get(holder.replace("(none)", "<NA>"), 0) + ns
        same("charged by tenant", nb("{str(k): int(v) for k, v in by_tenant['charged_ns'].items()}"), charged)
        # The report rounds means such that they add up.
        tail = report["tail"]
        rows = {COLUMNS.get(p["phase"], p["phase"]): p for p in tail["phases"]}
        for column, key in ("slowest_s", "mean_ns"), ("median_s", "median_mean_ns"), ("difference_s", "difference_ns"):
            same(f"tail, {column}", nb(f"{{k.removesuffix('_ns'): 1e9 * v for k, v in tail['{column}'].items() if v}}"),
                 {name: p[key] for name, p in rows.items()}, 2)
        same("tail by cause", nb("{k[6:-3]: 1e9 * v for k, v in why['slowest_s'].items() if v}"), by_cause(tail["causes"], "mean_ns"), 2)
        same("cause", nb("{k[6:-3]: int(v) for k, v in requests[causes].sum().items() if v}"), by_cause(waiting["causes"], "ns"))


def sql():
    report = ask("report", "--by", "tenant", "--format", "json", *capture)
    lengths = ask("report", "--by", "prompt_bucket", "--format", "json", *capture)
    waiting = ask("waiting", "--by", "tenant", "--format", "json", *capture)
    with Notebook("2-sql.ipynb", folder) as nb:
        rows = report["groups"][0]["rows"]
        same("requests by tenant", nb("[[r[0], r[1]] for r in latency.fetchall()]"), [[g["values"][0] or None, g["requests"]] for g in rows])
        same("p99 by tenant", nb("[r[4] * 1e9 for r in latency.fetchall()]"), [g["p99_e2e_ns"] for g in rows], 1)
        same("waiting by tenant", nb("[r[5] * 1e9 for r in latency.fetchall()]"), [g["waiting_all_ns"] for g in rows], 1)
        buckets = {int(g["values"][0].split("-")[0]): g for g in lengths["groups"][0]["rows"] if g["used"]}
        same("requests by length", nb("{r[0]: r[1] for r in lengths.fetchall()}"), {str(k): g["used"] for k, g in buckets.items()})
        same("mean wait by length", nb("{r[0]: r[2] * 1e9 for r in lengths.fetchall()}"), {str(k): g["mean_waiting_ns"] for k, g in buckets.items()}, 1)
        same("cause", nb("""{c: int(ns) for c, ns in db.sql("SELECT cause, sum(ns) FROM 'tables/waiting.parquet' GROUP BY cause").fetchall()}"""), by_cause(waiting["causes"], "ns"))
        matrix = [c for c in cells(waiting) if c[0] != "(none)"]
        pairs = {}
        for waiter, holder, cause, ns in matrix:
            pairs[f"{waiter} {holder}"] = pairs.get(f"{waiter} {holder}", 0) + ns
        same("blame", nb("{f'{r[0]} {r[1]}': 1e9 * r[2] for r in blame.fetchall()}"), pairs, 1)
        # Of the gauges and of what clients saw, the command knows nothing: but
        # the trace must go with the one and not contradict the other.
        readings, gauge, trace, correlation = nb("depth.fetchall()[0]")
        if readings < 600 or correlation < 0.95 or not 0 <= gauge - trace < 0.2:
            failures.append(f"{readings} readings of the gauge: {gauge} and by the trace {trace}, correlation {correlation}")
        calls, least, *_ = nb("clients.fetchall()[0]")
        if calls < 130 or least < 0:
            failures.append(f"{calls} clients saw the first chunk, the first of them {least} ms after the engine made it")


def large_table():
    model = "--rate 600 --count 200000 --seed 7 --setup 4ms --per-request 1ms --policy cap --size 8".split()
    trace = subprocess.run(["traceview", "simulate", *model], check=True, capture_output=True).stdout
    report = ask("report", "--format", "json", "-", stdin=trace)
    with Notebook("3-large-table.ipynb", folder) as nb:
        same("requests", nb("requests.select(pl.len()).collect().item()"), report["counts"]["requests"])
        for column, name in ("waiting_ns", "queueing"), ("e2e_ns", "e2e"):
            d = next(d for d in report["figures"] + report["phases"] if d["name"] == name)
            same(f"quantiles of {name}", nb(f"quantiles.head(3)['{column}'].to_list()"), [q["ns"] for q in d["quantiles"] if q["q"] in (0.5, 0.9, 0.99)], 0.51)
        same("waited", nb("waited_ns"), report["waiting"]["waiting_ns"])
        same("window", nb("window_ns"), report["measurement"]["window"]["length_ns"])
        same("mean waiting", nb("mean_waiting"), report["measurement"]["waiting_mean"], 1e-9)
        same("most waiting", nb("most_waiting"), report["measurement"]["waiting_peak"])
        same("groups", nb("groups.select((pl.col('size') * pl.col('groups')).sum()).item()"), report["counts"]["requests"])
        same("windows", nb("windows['requests'].sum()"), report["counts"]["requests"])
        same("cause", nb("{c: round(1e9 * s) for c, s in causes.group_by('cause').agg(pl.col('waited_s').sum()).rows()}"),
             by_cause(report["waiting"]["causes"], "ns"), 1000)
        same("cause of the slowest", nb("{c: 1e9 * s / 2000 for b, c, s in causes.rows() if b == 'slowest 1 %'}"), by_cause(report["tail"]["causes"], "mean_ns"), 2)


def where_waiting_accumulates():
    report = ask("report", "--by", "tenant", "--format", "json", *logged)
    waiting = ask("waiting", "--by", "tenant", "--format", "json", *logged)
    with Notebook("4-where-waiting-accumulates.ipynb", folder) as nb:
        shown = nb("list(main)")
        causes = by_cause(waiting["causes"], "ns")
        same("causes shown", shown, sorted(causes, key=causes.get)[: -len(shown) - 1 : -1])
        same("blame", nb("sorted([w, h, c, round(1e9 * s)] for c in main for w, r in matrix[c].iterrows() for h, s in r.dropna().items())"),
             sorted([w, h or "nobody", c, ns] for w, h, c, ns in cells(waiting) if c in shown and w != "(none)"))
        same("timeline", nb("{c: float((waiting[c] * whole['length_ns']).sum()) for c in waiting}"), {c: ns for c, ns in causes.items() if ns > 1e8}, 1000)
        differences = {COLUMNS.get(p["phase"], p["phase"]): p["difference_ns"] for p in report["tail"]["phases"]}
        same("tail by phase", nb("{k: 1e9 * v for k, v in phases.items()}"), differences, 3)
        same("tail by cause", nb("{k: 1e9 * v for k, v in by_cause.items()}"),
             {c: ns for c, ns in by_cause(report["tail"]["causes"], "difference_ns").items() if c in causes and causes[c] > 1e8}, 3)
    for picture in sorted(pictures.glob("*.svg")):
        drawn = folder / "tables" / picture.name
        if not drawn.exists() or drawn.read_bytes() != picture.read_bytes():
            failures.append(f"{picture} is not what the notebook draws: copy {drawn.name} from the folder of its tables")


for run in first_look, sql, large_table, where_waiting_accumulates:
    before = len(failures)
    run()
    print(f"{run.__name__}: {len(failures) - before} differences")
print("".join(f + "\n" for f in failures), file=sys.stderr, end="")
sys.exit(1 if failures else 0)
