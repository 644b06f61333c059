"""Check an exported Parquet table as pyarrow, DuckDB, pandas and Polars see it.

    check.py FOLDER REPORT.json

FOLDER is what `traceview export -o FOLDER/` wrote, REPORT what `traceview report
--format json` says of the same input. Types,
nulls, nanoseconds and sums must be the same in every reader, sums must be the
report's to the nanosecond, and each reader's own quantile must be the report's.
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
INTEGERS = PARTS + FIGURES + COUNTS + ["arrival_unix_nano", "resolution_ns"]
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
    print(f"{path}: {arrow.num_rows} rows, {len(arrow.column_names)} columns, {len(failures)} differences")
    sys.exit(1 if failures else 0)


arrow = pyarrow.parquet.read_table(path)
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
same("type of issues", text, pyarrow=arrow.schema.field("issues").type.value_type)
for column, item in ("attributes", text), ("other_sets", pyarrow.int64()):
    got = arrow.schema.field(column).type
    same(f"type of {column}", (True, text, item), pyarrow=(pyarrow.types.is_map(got), got.key_type, got.item_type))
ask("SELECT count(attributes['tenant']) + count(other_sets['x']) + sum(len(issues)) FROM t")  # a map and a list to DuckDB

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

# So do the causes to its waiting, and the other tables' rows to all of it.
causes = " + ".join(CAUSES)
same("rows whose causes do not add up", 0, duckdb=ask(f"SELECT count(*) FROM t WHERE waiting_ns IS DISTINCT FROM {causes}"))
waited = int(ask("SELECT coalesce(sum(waiting_ns), 0) FROM t"))
for name in "waiting", "blame":
    file = f"{folder}/{name}.parquet"
    same(f"{name}.parquet", waited,
         pyarrow=pyarrow.compute.sum(pyarrow.parquet.read_table(file)["ns"]).as_py() or 0,
         pandas=int(pandas.read_parquet(file, dtype_backend="numpy_nullable")["ns"].sum()),
         polars=polars.read_parquet(file)["ns"].sum(),
         duckdb=int(ask(f"SELECT coalesce(sum(ns), 0) FROM read_parquet('{file}')")))
same("waiting by request", 0, duckdb=ask(f"""
    SELECT count(*) FROM (SELECT "row", sum(ns) ns FROM read_parquet('{folder}/waiting.parquet') GROUP BY 1) w
    FULL JOIN (SELECT row_number() OVER () - 1 "row", waiting_ns FROM t) p USING ("row")
    WHERE coalesce(w.ns, 0) <> coalesce(waiting_ns, 0)"""))
same("charged", int(ask(f"SELECT coalesce(sum(ns), 0) FROM read_parquet('{folder}/blame.parquet') WHERE holder IS NOT NULL")),
     duckdb=int(ask("SELECT coalesce(sum(charged_ns), 0) FROM t")))
windows = pyarrow.parquet.read_table(f"{folder}/timeline.parquet")
over_time = " + ".join(c for c in windows.column_names if c.startswith("cause_")) or "0"
same("timeline.parquet", waited, duckdb=int(ask(f"SELECT coalesce(sum({over_time}), 0) FROM read_parquet('{folder}/timeline.parquet') WHERE series = 'all'")))
for d in report["phases"]:
    column = f"phase_{d['name']}_ns"
    if column in windows.column_names:
        same(f"{column} of timeline.parquet", d["total_all_ns"], polars=polars.from_arrow(windows).filter(polars.col("series") == "all")[column].sum())
stretches = pyarrow.parquet.read_table(f"{folder}/waiting.parquet")
for column in "start", "end":
    same(f"type of {column}", stamp, pyarrow=stretches.schema.field(column).type)

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
