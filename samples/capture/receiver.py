"""Take OTLP traces over gRPC and keep them as the collector's file exporter does."""

import base64
import concurrent.futures
import json
import pathlib
import signal
import struct
import subprocess
import tempfile
import threading

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc


class Receiver(rpc.TraceServiceServicer):
    """A trace service on a free port of the loopback interface.

    Each message becomes a line of <name>.jsonl and, if proto is set, a message
    of <name>.pb behind its length (4 bytes, big-endian).
    """

    def __init__(self, name, proto=False):
        self.lock = threading.Lock()
        self.json = open(f"{name}.jsonl", "w", encoding="utf-8", newline="\n")
        self.proto = open(f"{name}.pb", "wb") if proto else None
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        rpc.add_TraceServiceServicer_to_server(self, self.server)
        self.endpoint = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def Export(self, request, context):
        message = MessageToDict(request, use_integers_for_enums=True)
        for resource in message.get("resourceSpans", []):
            for scope in resource.get("scopeSpans", []):
                for span in scope.get("spans", []):
                    hexadecimal(span)
                    for link in span.get("links", []):
                        hexadecimal(link)
        with self.lock:
            self.json.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")
            if self.proto:
                data = request.SerializeToString(deterministic=True)
                self.proto.write(struct.pack(">I", len(data)) + data)
        return service.ExportTraceServiceResponse()

    def stop(self):
        self.server.stop(grace=5).wait()
        self.json.close()
        if self.proto:
            self.proto.close()


class Recorder:
    """traceview record on a free port of the loopback interface, kept as <name>.jsonl."""

    def __init__(self, program, name):
        self.folder, self.name = tempfile.TemporaryDirectory(), name
        self.process = subprocess.Popen(
            [program, "record", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "off", "-o", self.folder.name],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.endpoint = next(line.split(" at ")[1].strip() for line in self.process.stderr if " at http" in line)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        print(self.process.stderr.read(), end="")
        if self.process.wait():
            raise SystemExit(f"traceview record ended with status {self.process.returncode}")
        files = sorted(pathlib.Path(self.folder.name).iterdir())
        pathlib.Path(f"{self.name}.jsonl").write_bytes(b"".join(f.read_bytes() for f in files))
        self.folder.cleanup()


def hexadecimal(span):
    """OTLP/JSON writes ids in hexadecimal where protobuf's JSON has base64."""
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in span:
            span[key] = base64.b64decode(span[key]).hex()
