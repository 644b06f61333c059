# Puts the three spans of capture_test.go into a table with the schema of the
# collector's ClickHouse exporter (v0.159) and has ClickHouse write its rows:
#   pip install chdb==4.4.0
#   python clickhouse.py
import chdb.session

s = chdb.session.Session()
s.query("CREATE DATABASE d ENGINE = Atomic")
s.query(
    """CREATE TABLE d.otel_traces (
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)), TraceId String CODEC(ZSTD(1)), SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String), ScopeName String, ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String), Duration UInt64, StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String))
) ENGINE = MergeTree ORDER BY (ServiceName, SpanName, Timestamp)"""
)
res = "map('service.name','engine-a','service.instance.id','gpu-3')"
at = lambda ms: f"fromUnixTimestamp64Milli({1788000000000 + ms}, 'UTC')"
for span in (
    f"""{at(100)}, '5b8efff798038103d269b633813fc60c', '1111aaaa2222bbbb', 'eee19b7ec3c1b174', '', 'llm_request', 'Server', 'engine-a', {res}, 'demo.tracer', '',
    map('gen_ai.request.id','req-1','gen_ai.usage.prompt_tokens','512','gen_ai.latency.time_in_queue','0.7','stream','true','gen_ai.response.finish_reasons','["stop"]'),
    2400000000, 'Ok', '', [{at(900)}], ['first_token'], [map('n','1')], [], [], [], []""",
    f"""{at(0)}, '5b8efff798038103d269b633813fc60c', 'eee19b7ec3c1b174', '', '', 'POST /v1/completions', 'Server', 'engine-a', {res}, 'demo.tracer', '',
    map(), 2600000000, 'Unset', '', [], [], [], [], [], [], []""",
    f"""{at(3000)}, '0000000000000000a1b2c3d4e5f60718', '0333cccc4444dddd', '', '', 'llm_request', 'Internal', 'engine-a', {res}, 'demo.tracer', '',
    map(), 0, 'Error', 'it\\'s gone', [], [], [], [], [], [], []""",
):
    s.query(f"INSERT INTO d.otel_traces VALUES ({span})")
q = "SELECT * FROM d.otel_traces ORDER BY TraceId DESC, SpanId FORMAT "
for name, form in (("clickhouse.jsonl", "JSONEachRow"), ("clickhouse.json", "JSON"), ("clickhouse.parquet", "Parquet")):
    with open(name, "wb") as f:
        f.write(s.query(q + form, form).bytes())
