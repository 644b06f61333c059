"""Send spans from the Python SDK to `traceview record` and compare what comes out.

    check.py TRACEVIEW FOLDER

TRACEVIEW is the command, FOLDER a place for files. Both protocols, plain and
compressed, into each format of files: every span that was sent is one request,
with its ids, its times to the nanosecond and its attributes.
"""

import csv
import json
import pathlib
import re
import signal
import subprocess
import sys

import grpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GRPCExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HTTPExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

SPANS = 300
START = 1_700_000_000_000_000_001

traceview, folder = sys.argv[1], pathlib.Path(sys.argv[2])


class Recording:
    """A running `traceview record`."""

    def __init__(self, out, *flags):
        command = [traceview, "record", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "-o", out, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        text = self.process.stderr.readline() + self.process.stderr.readline()
        self.grpc, self.http = re.findall(r"at (http://\S+)", text)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        said = self.process.stderr.read()
        if self.process.wait(20):
            sys.exit(f"traceview record ended with {self.process.returncode}: {said}")


def send(name, exporter):
    """Send spans like vLLM's through the SDK's batches, and return what a table should say of them."""
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=64))
    tracer, rows = provider.get_tracer("vllm.llm_engine"), {}
    for i in range(SPANS):
        start, length = START + i * 1_000_003, 500_000_007 + i
        span = tracer.start_span("llm_request", start_time=start, attributes={
            "gen_ai.request.id": f"{name}-{i}",
            "gen_ai.usage.prompt_tokens": 100 + i,
            "gen_ai.latency.time_in_queue": 0.125,
            "gen_ai.latency.time_to_first_token": 0.25,
        })  # fmt: skip
        span.end(start + length)
        trace = f"{span.get_span_context().trace_id:032x}"
        rows[f"{name}-{i}"] = (trace, name, str(start), str(length), str(100 + i))
    provider.shutdown()
    return rows


failures = 0
for flags in (["--format", "json"], ["--format", "proto", "--compress", "zstd", "--rotate-size", "20kB"]):
    out = folder / flags[1]
    recording = Recording(out, *flags)
    traces = recording.http + "/v1/traces"
    want = {}
    want |= send("grpc", GRPCExporter(recording.grpc, insecure=True))
    want |= send("grpc-gzip", GRPCExporter(recording.grpc, insecure=True, compression=grpc.Compression.Gzip))
    want |= send("http", HTTPExporter(traces))
    want |= send("http-gzip", HTTPExporter(traces, compression=Compression.Gzip))
    recording.stop()

    table = folder / f"{flags[1]}.csv"
    subprocess.run([traceview, "export", "--strict", "--no-causes", "-o", table, out], check=True)
    with open(table, newline="", encoding="utf-8") as f:
        got = {r["request_id"]: (r["trace_id"], r["service"], r["arrival_unix_nano"], r["e2e_ns"], r["prompt_tokens"]) for r in csv.DictReader(f)}
    report = json.loads(subprocess.run([traceview, "report", "--format", "json", out], check=True, stdout=subprocess.PIPE).stdout)
    different = [k for k in want | got if want.get(k) != got.get(k)]
    for k in different[:10]:
        print(f"{k}: got {got.get(k)}, want {want.get(k)}")
    if report["counts"]["requests"] != len(want):
        print(f"the report has {report['counts']['requests']} requests")
        failures += 1
    failures += len(different)
    print(f"{' '.join(flags)}: {len(want)} spans sent, {len(got)} read in {len(list(out.iterdir()))} files, {len(different)} differences")
sys.exit(1 if failures else 0)
