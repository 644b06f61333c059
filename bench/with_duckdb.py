"""Phases of requests with DuckDB: python with_duckdb.py SHAPE IN OUT.parquet

Reads OTLP JSON lines of bench/gen's shape "spans" (attributes tell the phases)
or "children" (a span a phase). The types of all that is used are stated and
attributes become maps: of three ways tried (maps, list_filter, positions of
keys) the fastest.
"""
import sys

import duckdb

ATTRS = "STRUCT(key VARCHAR, value STRUCT(stringValue VARCHAR, intValue BIGINT, doubleValue DOUBLE))[]"
COLUMNS = f"""STRUCT(resource STRUCT(attributes {ATTRS}), scopeSpans STRUCT(spans STRUCT(
    traceId VARCHAR, spanId VARCHAR, parentSpanId VARCHAR, name VARCHAR, startTimeUnixNano BIGINT,
    endTimeUnixNano BIGINT, attributes {ATTRS}, status STRUCT(code INTEGER))[])[])[]"""

SPANS = f"""
    WITH lines AS (
        SELECT unnest(resourceSpans) AS r
        FROM read_json($input, format='newline_delimited', maximum_object_size=268435456, columns={{'resourceSpans': '{COLUMNS}'}})),
    scopes AS (SELECT map_from_entries(list_transform(r.resource.attributes, lambda x: (x.key, x.value))) AS of, unnest(r.scopeSpans) AS sc FROM lines),
    spans AS (SELECT of, unnest(sc.spans) AS s FROM scopes),
    keyed AS (SELECT of, s, map_from_entries(list_transform(s.attributes, lambda x: (x.key, x.value))) AS a FROM spans)
"""

COMMON = """
    a['gen_ai.request.id'].stringValue AS request_id, s.traceId AS trace_id,
    of['service.name'].stringValue AS service, of['service.instance.id'].stringValue AS replica,
    if(s.status.code = 2, 'error', 'ok') AS outcome,
    s.startTimeUnixNano AS arrival_unix_nano, s.endTimeUnixNano AS completed_unix_nano,
    s.endTimeUnixNano - s.startTimeUnixNano AS e2e_ns,
    a['gen_ai.usage.prompt_tokens'].intValue AS prompt_tokens, a['gen_ai.usage.completion_tokens'].intValue AS output_tokens,
    a['gen_ai.request.max_tokens'].intValue AS max_tokens, a['tenant'].stringValue AS tenant
"""


def ns(key):
    return f"round(a['gen_ai.latency.{key}'].doubleValue * 1e9)::BIGINT"


QUERIES = {
    "spans": f"""{SPANS}
        SELECT {COMMON},
            {ns('time_to_first_token')} AS ttft_ns, {ns('time_in_queue')} AS queueing_ns,
            {ns('time_in_model_prefill')} AS prefill_ns, {ns('time_in_model_decode')} AS decode_ns,
            e2e_ns - queueing_ns - prefill_ns - decode_ns AS frontend_ns
        FROM keyed""",
    "children": f"""{SPANS},
    phases AS (
        SELECT s.traceId AS t, s.parentSpanId AS p,
            sum(s.endTimeUnixNano - s.startTimeUnixNano) FILTER (s.name = 'arrival') AS arrival_ns,
            sum(s.endTimeUnixNano - s.startTimeUnixNano) FILTER (s.name = 'queue') AS queueing_ns,
            sum(s.endTimeUnixNano - s.startTimeUnixNano) FILTER (s.name = 'prefill') AS prefill_ns,
            sum(s.endTimeUnixNano - s.startTimeUnixNano) FILTER (s.name = 'decode') AS decode_ns,
            sum(s.endTimeUnixNano - s.startTimeUnixNano) FILTER (s.name = 'completion') AS completion_ns
        FROM spans WHERE s.name <> 'llm_request' GROUP BY ALL)
        SELECT {COMMON}, arrival_ns, queueing_ns, prefill_ns, decode_ns, completion_ns
        FROM keyed LEFT JOIN phases ON s.traceId = t AND s.spanId = p
        WHERE s.name = 'llm_request'""",
}

shape, source, out = sys.argv[1:]
db = duckdb.connect()
db.execute("SET preserve_insertion_order = false")
db.execute(f"COPY ({QUERIES[shape].replace('$input', repr(source))}) TO {out!r} (FORMAT parquet)")
