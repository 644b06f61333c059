"""Check exported Parquet tables as pyarrow, DuckDB, pandas and Polars see them.

    check.py FOLDER REPORT.json

FOLDER is what `traceview export -o FOLDER/` wrote, REPORT what `traceview report
--format json` says of the same input. Types, nulls, nanoseconds and sums must be
the same in every reader. The sums of each table must be the phase table's and
the report's to the nanosecond, and each reader's own quantile the report's.
"""

import json
import sys

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.compute
import pyarrow.parquet

INSTANTS = ["arrival", "queued", "scheduled", "first_token", "last_token", "completed"]
WORDS = ["source", "engine", "service", "replica", "model", "outcome", "finish_reason", "clock"]
COUNTS = ["prompt_tokens", "cached_tokens", "output_tokens", "max_tokens", "preemptions"]
PARTS = [p + "_ns" for p in (
    "arrival queueing prefill decode preempted transfer completion frontend "
    "queueing_prefill prefill_decode other_sets unattributed").split()]
FIGURES = ["e2e_ns", "ttft_ns", "waiting_ns", "compute_ns", "overhead_ns", "overlap_ns", "outside_ns", "conflict_ns"]
CAUSES = [f"cause_{c}_ns" for c in "hold stall slots kv_cache prefill step unknown".split()]
FIGURES += CAUSES + ["avoidable_ns", "charged_ns"]
INTEGERS = PARTS + FIGURES + COUNTS + ["arrival_unix_nano", "resolution_ns", "row"]
SETS = {"arrival|completion": "frontend_ns", "queueing|prefill": "queueing_prefill_ns", "prefill|decode": "prefill_decode_ns"}

folder, report_path = sys.argv[1:]
path = folder + "/phases.parquet"
with open(report_path) as f:
    report = json.load(f)
failures = []


def same(what, want, **readers):
    """Each reader's answer is what is wanted."""
    for name, got in readers.items():
        if got != want:
            failures.append(f"{what}: {name} has {got!r}, want {want!r}")


def finish():
    print("".join(f + "\n" for f in failures), file=sys.stderr, end="")
    sizes = ", ".join(f"{name} {t.num_rows} rows" for name, t in tables.items())
    print(f"{folder}: {sizes}; {len(failures)} differences")
    sys.exit(1 if failures else 0)


tables = {name: pyarrow.parquet.read_table(f"{folder}/{name}.parquet") for name in ("phases", "waiting", "blame", "timeline")}
arrow = tables["phases"]
frame = pandas.read_parquet(path, dtype_backend="numpy_nullable")
polar = polars.read_parquet(path)
duck = duckdb.connect()
duck.execute("SET TimeZone = 'UTC'")
duck.read_parquet(path).create_view("t")


def ask(sql):
    return duck.sql(sql).fetchall()[0][0]


# Types.
described = [row[:2] for row in duck.sql("DESCRIBE t").fetchall()]
text, stamp = pyarrow.string(), pyarrow.timestamp("ns", tz="UTC")
types = {"tpot_ns": pyarrow.float64(), "request_id": text, "trace_id": text}
types |= {c: text for c in WORDS} | {c: stamp for c in INSTANTS} | {c: pyarrow.int64() for c in INTEGERS}
for column, want in types.items():
    same(f"type of {column}", want, pyarrow=arrow.schema.field(column).type)
for column in INTEGERS:
    same(f"type of {column}", "BIGINT", duckdb=dict(described)[column])
    same(f"type of {column}", polars.Int64, polars=polar.schema[column])
for column in INSTANTS:
    same(f"type of {column}", "datetime64[ns, UTC]", pandas=str(frame[column].dtype))
    same(f"type of {column}", polars.Datetime("ns", "UTC"), polars=polar.schema[column])
    same(f"type of {column}", "TIMESTAMPTZ_NS", duckdb=dict(described)[column])
same("type of issues", text, pyarrow=arrow.schema.field("issues").type.value_type)
same("type of issues", "VARCHAR[]", duckdb=dict(described)["issues"])
same("type of issues", polars.List(polars.String), polars=polar.schema["issues"])
for column, item, there, here in ("attributes", text, "VARCHAR", polars.String), ("other_sets", pyarrow.int64(), "BIGINT", polars.Int64):
    got = arrow.schema.field(column).type
    same(f"type of {column}", (True, text, item), pyarrow=(pyarrow.types.is_map(got), got.key_type, got.item_type))
    same(f"type of {column}", f"MAP(VARCHAR, {there})", duckdb=dict(described)[column])
    same(f"type of {column}", polars.Map(polars.String, here), polars=polar.schema[column])

if failures:  # with other types, no more can be asked
    finish()

# Words are dictionaries, pages are zstd.
meta = pyarrow.parquet.ParquetFile(path).metadata
for group in map(meta.row_group, range(meta.num_row_groups)):
    for i in range(group.num_columns):
        chunk = group.column(i)
        same(f"compression of {chunk.path_in_schema}", "ZSTD", pyarrow=chunk.compression)
        if chunk.path_in_schema in WORDS:
            same(f"{chunk.path_in_schema} is a dictionary", True, pyarrow="RLE_DICTIONARY" in chunk.encodings)
# So who asks for categories gets them; a column is text to who does not.
as_words = pyarrow.parquet.read_table(path, columns=WORDS, read_dictionary=WORDS)
categories = pandas.read_parquet(path, columns=WORDS, read_dictionary=WORDS)
for column in WORDS:
    same(f"{column} as categories", pyarrow.dictionary(pyarrow.int32(), text), pyarrow=as_words.schema.field(column).type)
    same(f"{column} as categories", "category", pandas=str(categories[column].dtype))
    words = arrow[column].to_pylist()
    same(f"{column} as categories", words, pyarrow=as_words[column].to_pylist(), polars=polar[column].cast(polars.Categorical).to_list(),
         pandas=[None if w is None or w != w else w for w in categories[column].tolist()])
# Maps hold the same in every reader, a key without a value too.
maps = [dict(m) for m in arrow["attributes"].to_pylist()]
same("attributes", maps, polars=polar["attributes"].to_list(), pandas=[dict(m) for m in frame["attributes"]],
     duckdb=[m for m, in duck.sql("SELECT attributes FROM t").fetchall()])

same("schema version", b"1", pyarrow=(meta.metadata or {}).get(b"traceview.schema"))

# Rows, nulls and sums, the same to all and exact.
rows = report["counts"]["requests"]
same("rows", rows, pyarrow=arrow.num_rows, pandas=len(frame), polars=polar.height, duckdb=ask("SELECT count(*) FROM t"))
for column in arrow.column_names:
    same(f"nulls of {column}", arrow[column].null_count, pandas=int(frame[column].isna().sum()),
         polars=polar[column].null_count(), duckdb=ask(f'SELECT count(*) - count("{column}") FROM t'))
for column in PARTS + FIGURES + COUNTS:
    same(f"sum of {column}", sum(v for v in arrow[column].to_pylist() if v is not None),
         pyarrow=pyarrow.compute.sum(arrow[column]).as_py() or 0, pandas=int(frame[column].sum()),
         polars=polar[column].sum(), duckdb=int(ask(f"SELECT coalesce(sum({column}), 0) FROM t")))

# Not one nanosecond of an instant is lost. (DuckDB cut such timestamps to
# microseconds before version 2, for which arrival_unix_nano is there.)
nanos = arrow["arrival_unix_nano"].to_pylist()
same("arrival", nanos, pyarrow=arrow["arrival"].cast(pyarrow.int64()).to_pylist(), polars=polar["arrival"].dt.epoch("ns").to_list(),
     pandas=[None if t is pandas.NaT else t.value for t in frame["arrival"]],
     duckdb=[t for t, in duck.sql("SELECT epoch_ns(arrival) FROM t").fetchall()])

# Every row's parts add up to its e2e.
parts = " + ".join(f"coalesce({p}, 0)" for p in PARTS)
same("rows whose parts do not add up", 0, duckdb=ask(f"SELECT count(*) FROM t WHERE e2e_ns <> {parts}"),
     polars=polar.filter(polars.col("e2e_ns") != polars.sum_horizontal(PARTS)).height)

# So do the causes to its waiting.
causes = " + ".join(CAUSES)
same("rows whose causes do not add up", 0, duckdb=ask(f"SELECT count(*) FROM t WHERE waiting_ns IS DISTINCT FROM {causes}"))

# The other tables: types, nulls, sums and instants, the same to all readers.
integer, number, truth = pyarrow.int64(), pyarrow.float64(), pyarrow.bool_()
INSTANT = {"start": stamp, "end": stamp, "start_unix_nano": integer, "end_unix_nano": integer}
SCHEMAS = {
    "waiting": {"row": integer, "request_id": text, "cause": text} | INSTANT | {"ns": integer, "hidden": truth, "avoidable": truth},
    "blame": {"waiter": text, "holder": text, "cause": text, "ns": integer},
    "timeline": {c: text for c in ("series", "service", "model", "replica")} | {"window": integer} | INSTANT | {
        c: integer for c in ("offset_ns", "length_ns", "arrivals", "served", "failed")} | {
        f"{what}_{how}": kind for what in ("system", "waiting", "running") for how, kind in (("mean", number), ("max", integer))} | {
        "engine_readings": integer} | {
        f"engine_{what}_{how}": kind for what in ("waiting", "running") for how, kind in (("mean", number), ("max", integer))} | {
        "engine_kv_usage_max_share": number} | {c: integer for c in PARTS if c != "other_sets_ns"} | {
        c: integer for c in ["other_sets_ns", "waiting_ns", "compute_ns", "overhead_ns"] + CAUSES},
}
polars_types = {text: polars.String, integer: polars.Int64, number: polars.Float64, truth: polars.Boolean, stamp: polars.Datetime("ns", "UTC")}
pandas_types = {text: "string", integer: "Int64", number: "Float64", truth: "boolean", stamp: "datetime64[ns, UTC]"}
for name, want in SCHEMAS.items():
    file = f"{folder}/{name}.parquet"
    duck.read_parquet(file).create_view(name)
    a, p, q = tables[name], pandas.read_parquet(file, dtype_backend="numpy_nullable"), polars.read_parquet(file)
    same(f"columns of {name}", sorted(want), pyarrow=sorted(a.column_names))
    for column in a.column_names:
        t = want.get(column)
        same(f"type of {name}.{column}", t, pyarrow=a.schema.field(column).type)
        same(f"type of {name}.{column}", polars_types.get(t), polars=q.schema[column])
        same(f"type of {name}.{column}", pandas_types.get(t), pandas=str(p[column].dtype))
        same(f"nulls of {name}.{column}", a[column].null_count, pandas=int(p[column].isna().sum()),
             polars=q[column].null_count(), duckdb=ask(f'SELECT count(*) - count("{column}") FROM {name}'))
        if t == integer and not column.endswith("_unix_nano"):  # whose sum is past int64
            same(f"sum of {name}.{column}", pyarrow.compute.sum(a[column]).as_py() or 0, pandas=int(p[column].sum()),
                 polars=q[column].sum(), duckdb=int(ask(f'SELECT coalesce(sum("{column}"), 0) FROM {name}')))
    for column in "start", "end":
        if name != "blame":
            same(f"{name}.{column}", a[column + "_unix_nano"].to_pylist(), pyarrow=a[column].cast(integer).to_pylist(), polars=q[column].dt.epoch("ns").to_list())
if failures:
    finish()

# What they add up to: the phase table, and the report of the same input.
waiting = report["waiting"] or {"waiting_ns": 0, "avoidable_ns": 0, "hidden_ns": 0, "causes": []}
by_cause = {c["cause"]: c["ns"] for c in waiting["causes"] if c["ns"]}


def sums(sql):
    return {key: int(ns) for key, ns in duck.sql(sql).fetchall() if ns}


same("waiting by cause", by_cause,
     phases={c: int(ask(f"SELECT coalesce(sum(cause_{c}_ns), 0) FROM t")) for c in by_cause},
     waiting=sums("SELECT cause, sum(ns) FROM waiting GROUP BY 1"), blame=sums("SELECT cause, sum(ns) FROM blame GROUP BY 1"),
     timeline={c: int(ask(f"SELECT coalesce(sum(cause_{c}_ns), 0) FROM timeline WHERE series = 'all'")) for c in by_cause})
same("waiting", waiting["waiting_ns"], phases=int(ask("SELECT coalesce(sum(waiting_ns), 0) FROM t")),
     waiting=int(ask("SELECT coalesce(sum(ns), 0) FROM waiting")), blame=int(ask("SELECT coalesce(sum(ns), 0) FROM blame")),
     timeline=int(ask("SELECT coalesce(sum(waiting_ns), 0) FROM timeline WHERE series = 'all'")))
for what in "avoidable", "hidden":
    same(what, waiting[what + "_ns"], waiting=int(ask(f"SELECT coalesce(sum(ns), 0) FROM waiting WHERE {what}")))
same("avoidable", waiting["avoidable_ns"], phases=int(ask("SELECT coalesce(sum(avoidable_ns), 0) FROM t")))
for column, of in [("waiting_ns", "true"), ("avoidable_ns", "avoidable")] + [(f"cause_{c}_ns", f"cause = '{c}'") for c in by_cause]:
    same(f"{column} by request", 0, duckdb=ask(f"""
        SELECT count(*) FROM (SELECT "row", sum(ns) ns FROM waiting WHERE {of} GROUP BY 1) w
        FULL JOIN t USING ("row") WHERE coalesce(w.ns, 0) <> coalesce({column}, 0)"""))
same("request ids of stretches", 0, duckdb=ask("""
    SELECT count(*) FROM waiting w LEFT JOIN t USING ("row") WHERE w.request_id IS DISTINCT FROM t.request_id"""))
same("lengths of stretches", 0, duckdb=ask("SELECT count(*) FROM waiting WHERE end_unix_nano - start_unix_nano <> ns"))
same("rows", list(range(rows)), pyarrow=arrow["row"].to_pylist())
same("charged", int(ask("SELECT coalesce(sum(ns), 0) FROM blame WHERE holder IS NOT NULL")),
     phases=int(ask("SELECT coalesce(sum(charged_ns), 0) FROM t")))
for column in PARTS + ["waiting_ns", "compute_ns", "overhead_ns"] + CAUSES:
    same(f"{column} over time", int(ask(f"SELECT coalesce(sum({column}), 0) FROM t")),
         all=int(ask(f"SELECT coalesce(sum({column}), 0) FROM timeline WHERE series = 'all'")))
    if ask("SELECT count(*) FROM timeline WHERE series <> 'all'"):
        same(f"{column} of replicas over time", int(ask(f"SELECT coalesce(sum({column}), 0) FROM t")),
             replicas=int(ask(f"SELECT coalesce(sum({column}), 0) FROM timeline WHERE series <> 'all'")))
same("lengths of windows", 0, duckdb=ask("SELECT count(*) FROM timeline WHERE end_unix_nano - start_unix_nano <> length_ns"))
same("arrivals", ask("SELECT count(arrival) FROM t"), timeline=int(ask("SELECT coalesce(sum(arrivals), 0) FROM timeline WHERE series = 'all'")))
same("ends", ask("SELECT count(completed) FROM t"), timeline=int(ask("SELECT coalesce(sum(served + failed), 0) FROM timeline WHERE series = 'all'")))

# The report: totals over all and over the used requests, and quantiles.
used = "outcome = 'ok' AND e2e_ns IS NOT NULL"
used_polar = polar.filter((polars.col("outcome") == "ok") & polars.col("e2e_ns").is_not_null())
used_frame = frame[(frame["outcome"] == "ok") & frame["e2e_ns"].notna()]
same("used requests", report["counts"]["used"], duckdb=ask(f"SELECT count(*) FROM t WHERE {used}"), polars=used_polar.height, pandas=len(used_frame))


def total(column, where):
    return int(ask(f"SELECT coalesce(sum({column}), 0) FROM t WHERE {where}"))


def compare(d, column):
    same(f"total of {d['name']}", d["total_ns"], duckdb=total(column, used), polars=used_polar[column].sum(), pandas=int(used_frame[column].sum()))
    same(f"requests with {d['name']}", d["requests"], duckdb=ask(f"SELECT count({column}) FROM t WHERE {used}"))
    for q in d["quantiles"]:
        # The report rounds to whole nanoseconds, halves up.
        for name, got in {
            "duckdb": ask(f"SELECT quantile_cont({column}, {q['q']}) FROM t WHERE {used}"),
            "pandas": used_frame[column].quantile(q["q"]),
            "polars": used_polar[column].quantile(q["q"], interpolation="linear"),
        }.items():
            if got is None or abs(got - q["ns"]) > 0.51:
                failures.append(f"q{q['q']} of {d['name']}: {name} has {got!r}, want {q['ns']}")


for d in report["phases"]:
    column = SETS.get(d["name"], d["name"] + "_ns")
    if column in arrow.column_names:
        same(f"total of {d['name']} over all", d["total_all_ns"], duckdb=total(column, "true"))
        compare(d, column)
for d in report["figures"]:
    if d["name"] != "tpot":  # the report's is rounded for each request
        compare(d, d["name"] + "_ns")
for k in report["kinds"]:
    column = {"unknown": "unattributed_ns"}.get(k["kind"], k["kind"] + "_ns")
    if column in arrow.column_names:
        same(f"total of {k['kind']}", k["total_ns"], duckdb=total(column, used))
        same(f"total of {k['kind']} over all", k["total_all_ns"], duckdb=total(column, "true"))

finish()
