"""Take OTLP traces over gRPC and keep them as the collector's file exporter does."""

import base64
import concurrent.futures
import json
import struct
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


def hexadecimal(span):
    """OTLP/JSON writes ids in hexadecimal where protobuf's JSON has base64."""
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in span:
            span[key] = base64.b64decode(span[key]).hex()
