// Turns the spans of capture_test.go, as OTLP, into Jaeger's JSON, by way of
// the collector's translator and Jaeger's own converter:
//
//	go run jaeger.go < spans.otlp.json > jaeger.json
//
// with github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/jaeger
// and github.com/jaegertracing/jaeger v1.62.0.
package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/jaegertracing/jaeger/model"
	jjson "github.com/jaegertracing/jaeger/model/converter/json"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/jaeger"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func main() {
	data, _ := io.ReadAll(os.Stdin)
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
	if err != nil {
		panic(err)
	}
	byTrace := map[model.TraceID]*model.Trace{}
	var order []*model.Trace
	for _, b := range jaeger.ProtoFromTraces(td) {
		for _, s := range b.Spans {
			if s.Process == nil {
				s.Process = b.Process
			}
			t := byTrace[s.TraceID]
			if t == nil {
				t = &model.Trace{}
				byTrace[s.TraceID] = t
				order = append(order, t)
			}
			t.Spans = append(t.Spans, s)
		}
	}
	var list []any
	for _, t := range order {
		list = append(list, jjson.FromDomain(t))
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"data": list, "total": 0, "limit": 0, "offset": 0, "errors": nil})
}
