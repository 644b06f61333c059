package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var dir = filepath.Join("..", "..", "..", "..", "samples")

// TestSamples holds the committed samples against what the generator writes.
// Of compressed ones the content counts: compressors may change.
func TestSamples(t *testing.T) {
	files, err := samples()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join(dir, f.name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(plain(t, f.name, have), plain(t, f.name, f.data)) {
			t.Errorf("%s is not what go run ./internal/sim/cmd/samples -o samples writes", f.name)
		}
		if !strings.Contains(string(readme), "`"+f.name+"`") {
			t.Errorf("%s is not in samples/README.md", f.name)
		}
	}
}

func TestWrite(t *testing.T) {
	if err := write(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("no error for a folder that is not there")
	}
	tmp := t.TempDir()
	if err := write(tmp); err != nil {
		t.Fatal(err)
	}
	files, err := samples()
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob(filepath.Join(tmp, "*")); len(names) != len(files) {
		t.Errorf("wrote %v", names)
	}
}

func plain(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	switch filepath.Ext(name) {
	case ".gz":
		z, err := gzip.NewReader(bytes.NewReader(data))
		check(err)
		data, err = io.ReadAll(z)
		check(err)
	case ".zst-framed":
		dec, err := zstd.NewReader(nil)
		check(err)
		defer dec.Close()
		var out []byte
		for len(data) >= 4 {
			n := 4 + int(binary.BigEndian.Uint32(data))
			out, err = dec.DecodeAll(data[4:n], out)
			check(err)
			data = data[n:]
		}
		return out
	}
	return data
}
