"""Capture what a real vLLM says of a few hundred requests.

Makes a tiny model, starts the server on loopback, drives it, and keeps the
spans, the log, the server's counters before and after, its gauges every 100 ms
and what the clients saw. Nothing leaves the machine.
"""

import argparse
import asyncio
import csv
import gzip
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import aiohttp
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from load import Load, plan
from model import build
from receiver import Receiver, Recorder

CONTEXT = 2048
SERVER = [
    "--max-model-len", str(CONTEXT),
    "--max-num-seqs", "6",
    "--max-num-batched-tokens", "512",
    "--block-size", "32",
    "--num-gpu-blocks-override", "96",
    "--no-enable-prefix-caching",
    "--enforce-eager",
    "--enable-log-requests",
    "--enable-log-outputs",
    "--enable-logging-iteration-details",
    "--disable-access-log-for-endpoints", "/metrics,/health",
]  # fmt: skip
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",  # the package's version does not say so
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOG_STATS_INTERVAL": "2",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OTEL_SERVICE_NAME": "vllm",
}
# The engine that vLLM had before: no iteration details, no outputs in the log,
# statistics every 5 s, and times that workers measured in the spans.
SERVER_V0 = [
    "--max-model-len", str(CONTEXT),
    "--max-num-seqs", "6",
    "--block-size", "16",
    "--num-gpu-blocks-override", "192",
    "--enforce-eager",
    "--disable-uvicorn-access-log",
    "--collect-detailed-traces", "all",
]  # fmt: skip
ENVIRONMENT_V0 = {"VLLM_USE_V1": "0", "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true"}
GAUGES_V0 = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_cache_usage": "vllm:gpu_cache_usage_perc",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
}
GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "waiting_capacity": 'vllm:num_requests_waiting_by_reason{reason="capacity"}',
    "waiting_deferred": 'vllm:num_requests_waiting_by_reason{reason="deferred"}',
    "kv_cache_usage": "vllm:kv_cache_usage_perc",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
}


def figures(text):
    """Read vLLM's own figures off a Prometheus page, less the labels that one engine does not need."""
    values = {}
    for line in text.splitlines():
        if line.startswith("vllm:"):
            name, value = line.rsplit(" ", 1)
            name, _, labels = name.partition("{")
            kept = [p for p in labels.rstrip("}").split(",") if p and not p.startswith(("engine=", "model_name="))]
            values[name + ("{" + ",".join(kept) + "}" if kept else "")] = value
    return values


def keep(text):
    """The lines of a Prometheus page that count: no histogram buckets, no times of creation."""
    return "".join(
        line + "\n"
        for line in text.splitlines()
        if line.startswith("vllm:") and "_bucket{" not in line and "_created{" not in line and "_info{" not in line
    )


async def page(http, base):
    async with http.get(base + "/metrics") as response:
        return await response.text()


async def sample(http, base, rows, done, gauges):
    """Read the gauges every 100 ms until done."""
    while not done.is_set():
        asked = time.time_ns()
        values = figures(await page(http, base))
        # The V0 engine has no gauges before its first request.
        rows.append([asked, time.time_ns(), *(values.get(g, "") for g in gauges.values())])
        try:
            await asyncio.wait_for(done.wait(), max(0.001, 0.1 - (time.time_ns() - asked) / 1e9))
        except TimeoutError:
            pass


async def drive(base, out, seconds, bench, gauges, patient):
    async with aiohttp.ClientSession() as http:
        before = await page(http, base)
        rng = random.Random(1)
        calls = plan(seconds, rng, patient)
        load, rows, done = Load(base, "tiny", rng), [], asyncio.Event()
        sampler = asyncio.create_task(sample(http, base, rows, done, gauges))
        await load.run(calls)
        if bench:
            await bench(base)
        for _ in range(100):
            values = figures(await page(http, base))
            if float(values.get(gauges["running"], 0)) + float(values.get(gauges["waiting"], 0)) == 0:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        done.set()
        await sampler
        after = await page(http, base)
    load.write(f"{out}-client.csv")
    pathlib.Path(f"{out}-before.prom").write_text(keep(before))
    pathlib.Path(f"{out}-after.prom").write_text(keep(after))
    with open(f"{out}-gauges.csv", "w", newline="", encoding="utf-8") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["asked_unix_nano", "answered_unix_nano", *gauges])
        w.writerows(rows)


def benchmark():
    """vLLM's own benchmark (vllm bench serve), to be run on a server. Importing it takes its time."""
    from vllm.benchmarks import serve

    parser = argparse.ArgumentParser()
    serve.add_cli_args(parser)
    options = (
        "--model tiny --tokenizer tiny --backend openai --endpoint /v1/completions "
        "--dataset-name random --random-input-len 100 --random-output-len 40 --num-prompts 30 "
        "--request-rate 6 --ignore-eos --seed 1 --disable-tqdm --save-result --save-detailed "
        "--result-filename bench.json"
    )
    return lambda base: serve.main_async(parser.parse_args([*options.split(), "--base-url", base]))


def healthy(server, base, log):
    for _ in range(240):
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}; see {log}")
        try:
            with urllib.request.urlopen(base + "/health", timeout=2):
                return
        except OSError:
            time.sleep(1)
    sys.exit(f"the server did not come up; see {log}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("-o", "--out", default="vllm-real", help="begin of the files' names")
    p.add_argument("--text", default="README.md", help="what the tokenizer is trained on")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--bench", action="store_true", help="run vLLM's own benchmark afterwards")
    p.add_argument("--v0", action="store_true", help="the engine of vLLM 0.8, whose options differ")
    p.add_argument("--record", metavar="TRACEVIEW", help="take the spans with this traceview record")
    a = p.parse_args()
    if a.record:
        a.record = str(pathlib.Path(a.record).resolve())
    options, gauges = (SERVER_V0, GAUGES_V0) if a.v0 else (SERVER, GAUGES)
    out = pathlib.Path(a.out).resolve()
    text = pathlib.Path(a.text).read_text(encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.update(ENVIRONMENT | (ENVIRONMENT_V0 if a.v0 else {}))
        build("tiny", text, CONTEXT)
        if a.record:
            spans, clients = Recorder(a.record, out), Recorder(a.record, f"{out}-client")
        else:
            spans, clients = Receiver(out, proto=True), Receiver(f"{out}-client")
        provider = TracerProvider(resource=Resource.create({"service.name": "load"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(clients.endpoint, insecure=True)))
        trace.set_tracer_provider(provider)

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        base = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--otlp-traces-endpoint", spans.endpoint, *options]
        with open("server.log", "wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            bench = benchmark() if a.bench else None
            healthy(server, base, f"{out}.log.gz")
            asyncio.run(drive(base, out, a.seconds, bench, gauges, patient=a.v0))
            provider.shutdown()
            time.sleep(7)  # the exporter of the server sends every five seconds
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
            data = pathlib.Path("server.log").read_bytes()
            pathlib.Path(f"{out}.log.gz").write_bytes(gzip.compress(data, mtime=0))
            spans.stop()
            clients.stop()
            if os.path.exists("bench.json"):
                pathlib.Path(f"{out}-bench.json").write_bytes(pathlib.Path("bench.json").read_bytes())
        os.chdir(out.parent)


if __name__ == "__main__":
    main()
