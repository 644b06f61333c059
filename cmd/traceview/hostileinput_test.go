package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// one is a span of a request of 1 s, as members of an object without its
// brackets.
const one = `"traceId":"%032x","spanId":"0000000000000001","name":"llm_request","startTimeUnixNano":"1788000000000000000","endTimeUnixNano":"1788000001000000000"`

// otlpOf is a document with these spans.
func otlpOf(spans string) string {
	return `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.llm_engine"},"spans":[` + spans + `]}]}]}`
}

func goodSpan(n int) string { return "{" + fmt.Sprintf(one, n) + "}" }

// members are n gzip members of data each: what n times as much would take is
// never there.
func members(t *testing.T, data string, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b.Bytes(), n)
}

// aZip is a zip archive with a list of n files, all of them the same one.
func aZip(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("a.json")
	if err == nil {
		_, err = io.WriteString(f, otlpOf(goodSpan(1)))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	list := bytes.Index(data, []byte("PK\x01\x02"))
	end := bytes.Index(data, []byte("PK\x05\x06"))
	tail := bytes.Clone(data[end:])
	binary.LittleEndian.PutUint16(tail[8:], uint16(n))
	binary.LittleEndian.PutUint16(tail[10:], uint16(n))
	binary.LittleEndian.PutUint32(tail[12:], uint32(n*(end-list)))
	return append(append(bytes.Clone(data[:list]), bytes.Repeat(data[list:end], n)...), tail...)
}

// aTar is a tar archive of one file that says that it has so many bytes.
func aTar(t *testing.T, name string, size int64, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o666}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(data)
	return b.Bytes()
}

// What is made to harm is read in bounded memory, is told of in words, and does
// not hide what is good beside it.
func TestHostileInputs(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	const mib = 1 << 20
	prefix := func(n uint32, data string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n), data...)
	}
	first := prefix(uint32(len(otlpOf(goodSpan(1)))), otlpOf(goodSpan(1)))
	const array, endArray = `{"arrayValue":{"values":[`, `]}}`
	// Ten kvlists of ten kvlists of …: 10^5 leaves under one key.
	laughs := `{"stringValue":"ha"}`
	for range 5 {
		laughs = `{"kvlistValue":{"values":[` + strings.TrimSuffix(strings.Repeat(`{"key":"k","value":`+laughs+`},`, 10), ",") + `]}}`
	}
	for _, tt := range []struct {
		name     string
		data     []byte
		requests int // below zero: nothing that is read
		words    string
	}{
		{"a gigabyte of zeros", members(t, strings.Repeat("\x00", 16*mib), 64), -1, "unknown-format"},
		{"zeros behind a good record", append(members(t, otlpOf(goodSpan(1))+"\n", 1), members(t, strings.Repeat("\x00", 16*mib), 16)...), 1, "bad-json"},
		{"JSON nested deep", []byte(strings.Repeat(`{"resourceSpans":[`, mib)), 0, "truncated"},
		{"an attribute nested deep", []byte(otlpOf(goodSpan(1) + ",{" + fmt.Sprintf(one, 2) + `,"attributes":[{"key":"k","value":` + strings.Repeat(array, mib/4) + strings.Repeat(endArray, mib/4) + "}]}")), 2, "bad-field"},
		{"Jaeger nested deep", []byte(`{"data":[{"traceID":"1","spanID":"2","operationName":"x"` + strings.Repeat(`,"data":[{`, mib)), 0, "truncated"},
		{"a frame of 500 MB", append(bytes.Clone(first), prefix(0x1f000000, "{"+strings.Repeat(" ", mib))...), 1, "record-too-large"},
		{"a protobuf of 4 GiB", append([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, "\x12\x02\x0a\x00"...), 0, "truncated"},
		{"a million issues", []byte(otlpOf(goodSpan(1) + strings.Repeat(",7", 1e6))), 1, "1,000,000"},
		{"a million laughs", []byte(otlpOf("{" + fmt.Sprintf(one, 1) + `,"attributes":[{"key":"k","value":` + laughs + `}]}`)), 1, ""},
		{"a million attributes", []byte(otlpOf("{" + fmt.Sprintf(one, 1) + `,"attributes":[` + strings.Repeat(`{"key":"k","value":{"stringValue":"v"}},`, 1e6) + `{}]}`)), 1, ""},
		{"a million keys twice", []byte(otlpOf("{" + fmt.Sprintf(one, 1) + strings.Repeat(`,"kind":2`, 1e6) + "}")), 1, "duplicate-key"},
		{"a zip of half a million files", aZip(t, 500000), 0, "record-too-large"},
		{"a zip of one file, 20,000 times", aZip(t, 20000), 1, "duplicate-span"},
		{"a tar file of 1 PiB", aTar(t, "a\x1b[2J.json", 1<<50, otlpOf(goodSpan(1))+strings.Repeat("\n", mib)), 1, "truncated"},
		{"what is no trace beside one", append(aTar(t, "README", 5, "hello"+strings.Repeat("\x00", 507)), aTar(t, "a.json", int64(len(otlpOf(goodSpan(1)))), otlpOf(goodSpan(1)))...), 1, "unknown-format"},
		{"a zip bomb", zipOf(t, "a.json", otlpOf(goodSpan(1))+"\n", 300*mib), 1, ""},
	} {
		file := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(file, tt.data, 0o666); err != nil {
			t.Fatal(err)
		}
		tt.data = nil
		for _, strict := range []bool{false, true} {
			args := []string{"report", file}
			want := statusOK
			if strict {
				args = []string{"check", "--strict", file}
			}
			if tt.requests < 0 { // no format that is read
				want = statusFailed
			}
			var out, errs bytes.Buffer
			runtime.GC()
			peak := watch()
			got := run(context.Background(), args, nil, &out, &errs)
			if most := peak(); most > 300*mib {
				t.Errorf("%s, %v: %d MiB", tt.name, args[0], most/mib)
			}
			text := out.String() + errs.String()
			switch {
			case want == statusFailed:
			case strict && strings.Contains(text, "\nDROPPED "):
				want = statusDropped
			}
			if got != want {
				t.Errorf("%s, %v: status %d, want %d:\n%.2000s", tt.name, args[0], got, want, text)
			}
			if strict && !strings.Contains(text, tt.words) {
				t.Errorf("%s: no word of %q in\n%.2000s", tt.name, tt.words, text)
			}
			if strings.ContainsRune(text, 0x1b) {
				t.Errorf("%s: a control character in %q", tt.name, text)
			}
			if !strict && tt.requests > 0 && !strings.Contains(text, fmt.Sprintf("requests     %d:", tt.requests)) {
				t.Errorf("%s: not %d requests in\n%.2000s", tt.name, tt.requests, text)
			}
		}
	}
}

// zipOf is a zip archive with one file of data and then so many blanks.
func zipOf(t *testing.T, name, data string, blanks int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create(name)
	if err == nil {
		_, err = io.WriteString(f, data)
	}
	for i := 0; i < blanks && err == nil; i += 1 << 20 {
		_, err = f.Write(bytes.Repeat([]byte("\n"), 1<<20))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// watch looks at the heap until the function it returns is called, which tells
// how much more it had, at most, than now.
func watch() func() uint64 {
	var begin runtime.MemStats
	runtime.ReadMemStats(&begin)
	stop, most := make(chan bool), make(chan uint64)
	go func() {
		var highest uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			highest = max(highest, m.HeapAlloc)
			select {
			case <-stop:
				most <- highest - min(highest, begin.HeapAlloc)
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		stop <- true
		return <-most
	}
}
