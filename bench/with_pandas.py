"""Phases of requests with pandas: python with_pandas.py SHAPE IN OUT.parquet

Reads what with_duckdb.py reads, as people do in a notebook: json.loads of each
line, lists into a frame, to_parquet.
"""
import json
import sys

import pandas as pd

shape, source, out = sys.argv[1:]
PHASES = {"arrival": "arrival_ns", "queue": "queueing_ns", "prefill": "prefill_ns", "decode": "decode_ns", "completion": "completion_ns"}


def values(attributes):
    return {a["key"]: next(iter(a["value"].values()), None) for a in attributes}


rows, children = [], []
with open(source) as lines:
    for line in lines:
        for r in json.loads(line)["resourceSpans"]:
            of = values(r["resource"]["attributes"])
            for scope in r["scopeSpans"]:
                for s in scope["spans"]:
                    start, end = int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"])
                    if s["name"] != "llm_request":
                        children.append((s["traceId"], s["parentSpanId"], PHASES.get(s["name"], "other_ns"), end - start))
                        continue
                    a = values(s["attributes"])
                    row = {
                        "request_id": a["gen_ai.request.id"], "trace_id": s["traceId"], "span_id": s["spanId"],
                        "service": of["service.name"], "replica": of["service.instance.id"],
                        "outcome": "error" if s.get("status", {}).get("code") == 2 else "ok",
                        "arrival_unix_nano": start, "completed_unix_nano": end, "e2e_ns": end - start,
                        "tenant": a.get("tenant"),
                    }
                    for name, key in [("prompt_tokens", "usage.prompt_tokens"), ("output_tokens", "usage.completion_tokens"), ("max_tokens", "request.max_tokens")]:
                        row[name] = int(a.get("gen_ai." + key, -1))
                    if shape == "spans":
                        for name, key in [("ttft_ns", "time_to_first_token"), ("queueing_ns", "time_in_queue"), ("prefill_ns", "time_in_model_prefill"), ("decode_ns", "time_in_model_decode")]:
                            row[name] = round(a["gen_ai.latency." + key] * 1e9)
                    rows.append(row)

t = pd.DataFrame(rows)
if shape == "children":
    c = pd.DataFrame(children, columns=["trace_id", "span_id", "phase", "ns"])
    t = t.merge(c.pivot_table(index=["trace_id", "span_id"], columns="phase", values="ns", aggfunc="sum").reset_index(), how="left", on=["trace_id", "span_id"])
t.to_parquet(out)
