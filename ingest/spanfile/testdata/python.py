# Prints the three spans of capture_test.go by OpenTelemetry's Python SDK:
#   pip install opentelemetry-sdk==1.45.2 opentelemetry-exporter-zipkin-json==1.45.1
#   python python.py > python-console.txt
#   python python.py zipkin > zipkin.json
import sys
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider, id_generator
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

T0 = 1788000000_000000000
at = lambda ms: T0 + ms * 1000000


class Ids(id_generator.IdGenerator):
    traces = iter([0x5B8EFFF798038103D269B633813FC60C, 0xA1B2C3D4E5F60718])
    spans = iter([0xEEE19B7EC3C1B174, 0x1111AAAA2222BBBB, 0x0333CCCC4444DDDD])
    generate_trace_id = lambda self: next(self.traces)
    generate_span_id = lambda self: next(self.spans)


if sys.argv[1:] == ["zipkin"]:
    from opentelemetry.exporter.zipkin.encoder import Protocol
    from opentelemetry.exporter.zipkin.json.v2 import JsonV2Encoder
    from opentelemetry.exporter.zipkin.node_endpoint import NodeEndpoint
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Exporter(SpanExporter):
        spans = []

        def export(self, spans):
            self.spans += spans
            return SpanExportResult.SUCCESS

        def shutdown(self):
            print(JsonV2Encoder().serialize(self.spans, NodeEndpoint()))

    exporter = Exporter()
else:
    exporter = ConsoleSpanExporter()

provider = TracerProvider(
    resource=Resource({"service.name": "engine-a", "service.instance.id": "gpu-3"}), id_generator=Ids(), shutdown_on_exit=False
)
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("demo.tracer")
a = tracer.start_span("POST /v1/completions", kind=SpanKind.SERVER, start_time=at(0))
b = tracer.start_span(
    "llm_request", context=trace.set_span_in_context(a), kind=SpanKind.SERVER, start_time=at(100),
    attributes={
        "gen_ai.request.id": "req-1", "gen_ai.usage.prompt_tokens": 512, "gen_ai.latency.time_in_queue": 0.7,
        "stream": True, "gen_ai.response.finish_reasons": ["stop"],
    },
)
b.add_event("first_token", {"n": 1}, timestamp=at(900))
b.set_status(Status(StatusCode.OK))
b.end(at(2500))
if exporter.__class__ is ConsoleSpanExporter:
    print("INFO: 200 OK", flush=True)
a.end(at(2600))
c = tracer.start_span("llm_request", context=trace.set_span_in_context(trace.INVALID_SPAN), start_time=at(3000))
c.set_status(Status(StatusCode.ERROR, "it's gone"))
c.end(at(3000))
exporter.shutdown()
