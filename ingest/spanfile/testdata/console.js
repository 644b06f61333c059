// Prints the three spans of capture_test.go by OpenTelemetry's JavaScript SDK:
//   npm install @opentelemetry/sdk-trace-base@2.12.1 @opentelemetry/resources
//   node console.js > js-console.txt
const { BasicTracerProvider, ConsoleSpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { trace, context, SpanKind, SpanStatusCode, ROOT_CONTEXT } = require('@opentelemetry/api');

const traces = ['5b8efff798038103d269b633813fc60c', '0000000000000000a1b2c3d4e5f60718'];
const spans = ['eee19b7ec3c1b174', '1111aaaa2222bbbb', '0333cccc4444dddd'];
const at = (ms) => [1788000000 + Math.floor(ms / 1000), (ms % 1000) * 1e6];
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'engine-a', 'service.instance.id': 'gpu-3' }),
  idGenerator: { generateTraceId: () => traces.shift(), generateSpanId: () => spans.shift() },
  spanProcessors: [new SimpleSpanProcessor(new ConsoleSpanExporter())],
});
const tracer = provider.getTracer('demo.tracer');
const a = tracer.startSpan('POST /v1/completions', { kind: SpanKind.SERVER, startTime: at(0) }, ROOT_CONTEXT);
const b = tracer.startSpan('llm_request', {
  kind: SpanKind.SERVER, startTime: at(100),
  attributes: {
    'gen_ai.request.id': 'req-1', 'gen_ai.usage.prompt_tokens': 512, 'gen_ai.latency.time_in_queue': 0.7,
    stream: true, 'gen_ai.response.finish_reasons': ['stop'],
  },
}, trace.setSpan(ROOT_CONTEXT, a));
b.addEvent('first_token', { n: 1 }, at(900));
b.setStatus({ code: SpanStatusCode.OK });
b.end(at(2500));
console.log('INFO: 200 OK');
a.end(at(2600));
const c = tracer.startSpan('llm_request', { startTime: at(3000) }, ROOT_CONTEXT);
c.setStatus({ code: SpanStatusCode.ERROR, message: "it's gone" });
c.end(at(3000));
