package ingest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/traceview/traceview/trace"
)

// packed is a file for an archive.
type packed struct{ name, data string }

func tarred(t testing.TB, files ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o666}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, files ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		e, err := w.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(e, f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// onDisk is an input that is a file.
func onDisk(t testing.TB, data []byte) Input {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	inputs, err := Open([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return inputs[0]
}

func TestArchives(t *testing.T) {
	a, b := packed{"a.json", doc("a")}, packed{"logs/b.json", doc("b")}
	gz := packed{"b.json.gz", string(gzipped(t, []byte(doc("b"))))}
	both := "a ok 1s\nb ok 1s"
	whole := tarred(t, a, b)
	damaged := bytes.Clone(whole)
	second := 512 + (len(doc("a"))+511)/512*512 // header
	damaged[second] ^= 0xff
	old := bytes.Clone(tarred(t, a))
	copy(old[257:265], make([]byte, 8)) // a header of before 1988
	sum := 0
	for i, c := range old[:512] {
		if i >= 148 && i < 156 {
			c = ' '
		}
		sum += int(c)
	}
	copy(old[148:156], fmt.Sprintf("%06o\x00 ", sum))
	encrypted := zipped(t, a)
	for _, at := range []int{6, bytes.Index(encrypted, []byte("PK\x01\x02")) + 8} {
		encrypted[at] |= 1
	}
	unknown := zipped(t, a)
	for _, at := range []int{8, bytes.Index(unknown, []byte("PK\x01\x02")) + 10} {
		binary.LittleEndian.PutUint16(unknown[at:], 99)
	}
	checksum := zipped(t, a, b)
	at := bytes.Index(checksum, []byte("PK\x01\x02")) + 16
	checksum[at] ^= 0xff
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{"tar", whole, both},
		{"tar of before 1988", old, "a ok 1s"},
		{"tar.gz", gzipped(t, whole), both},
		{"tar.zst", zstded(t, whole), both},
		{"compressed in a tar", tarred(t, a, gz), both},
		{"folders and hidden files", tarred(t, packed{"x/", ""}, packed{"._a.json", "x"}, packed{"x/.git/c", "x"}, a, packed{"./b.json", doc("b")}), both},
		{"other files", tarred(t, packed{"README.md", "hello"}, a), "! unknown-format\na ok 1s"},
		{"tar in tar.gz", gzipped(t, tarred(t, packed{"x.tar", string(whole)})), both},
		{"tar in tar in tar", tarred(t, packed{"x.tar", string(tarred(t, packed{"y.tar", string(whole)}))}), "! unknown-format"},
		{"tar without files", tarred(t, packed{"x/", ""}), "! empty-input"},
		{"tar cut in a file", whole[:len(doc("a"))/2+512], "! truncated"},
		{"tar cut in a header", whole[:second+100], "! truncated\na ok 1s"},
		{"tar.gz cut", gzipped(t, whole)[:len(gzipped(t, whole))-60], "! truncated"},
		{"tar damaged", damaged, "! bad-compression\na ok 1s"},

		{"zip", zipped(t, a, b), both},
		{"zip.gz", gzipped(t, zipped(t, a, b)), both},
		{"compressed in a zip", zipped(t, a, gz), both},
		{"zip in tar in zip", zipped(t, packed{"x.tar", string(whole)}), both},
		{"zip without files", zipped(t), "! empty-input"},
		{"zip cut", zipped(t, a, b)[:400], "! bad-compression"},
		{"zip encrypted", encrypted, "! unknown-format"},
		{"zip of another method", unknown, "! bad-compression"},
		{"zip with a false checksum", checksum, "! bad-compression\na ok 1s\nb ok 1s"},
	} {
		for how, in := range map[string]Input{"in memory": inMemory("x", tt.in), "on disk": onDisk(t, tt.in)} {
			if got := strings.Join(lines(t, Options{}, in), "\n"); got != tt.want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", tt.name, how, got, tt.want)
			}
		}
	}
}

// What is declared is not believed, and what is large is not held.
func TestHostileArchives(t *testing.T) {
	huge := bytes.Clone(tarred(t, packed{"a.json", doc("a")}))
	h := &tar.Header{Typeflag: tar.TypeReg, Name: "a.json", Size: 1 << 50, Mode: 0o666, Format: tar.FormatGNU}
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	copy(huge, b.Bytes()[:512])
	many := func(n int) (files []packed) {
		for i := range n {
			files = append(files, packed{fmt.Sprintf("%d.json", i), " "})
		}
		return files
	}
	zeros := strings.Repeat("\x00", 1<<20)
	spaces := doc("a") + strings.Repeat("\n", 1<<20)
	opts := Options{MaxRecord: 1 << 20, MaxInput: 4 << 20}
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{"a size of 1 PiB", huge, "! truncated\na ok 1s"},
		{"many files in a tar", tarred(t, many(2000)...), strings.TrimSpace(strings.Repeat("! empty-input\n", 2000))},
		{"a list too long", zipped(t, many(4000)...), "! record-too-large"},
		{"bombs", zipped(t, packed{"1", spaces}, packed{"2", spaces}, packed{"3", spaces}, packed{"4", spaces}, packed{"5", spaces}), "! input-too-large"},
		{"zeros", zipped(t, packed{"1", zeros}), "! unknown-format"},
		{"a zip too large for memory", gzipped(t, zipped(t, packed{"a", noise(2 << 20)})), "! record-too-large"},
		{"a bomb in a bomb", zipped(t, packed{"a.gz", string(gzipped(t, []byte(strings.Repeat(doc("a")+"\n", 20000))))}), "! input-too-large"},
	} {
		var got []string
		for _, l := range lines(t, opts, inMemory("x", tt.in)) {
			if !strings.HasPrefix(l, "! duplicate-span") && (tt.want != "! input-too-large" || l[0] == '!') {
				got = append(got, l)
			}
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s: got\n%.300s\nwant\n%.300s", tt.name, strings.Join(got, "\n"), tt.want)
		}
	}
}

func noise(n int) string {
	b := make([]byte, n)
	for i, x := 0, uint32(1); i < len(b); i++ {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

// Names come from whoever made the archive.
func TestNamesInArchives(t *testing.T) {
	for name, want := range map[string]string{
		"a.json":                                "x:a.json",
		"../../etc/a\x1b[2J\n.json":             "x:../../etc/a\uFFFD[2J\uFFFD.json",
		`dir\a.json`:                            "x:dir/a.json",
		strings.Repeat("a", 90) + "\u202e.json": "x:" + strings.Repeat("a", 90) + "\uFFFD.json",
	} {
		for _, in := range [][]byte{tarred(t, packed{name, "hello"}), zipped(t, packed{name, "hello"})} {
			for _, err := range Requests(t.Context(), []Input{inMemory("x", in)}, Options{}) {
				var is *trace.Issue
				if !errors.As(err, &is) || is.Pos.File != want {
					t.Errorf("%q: %v at %q, want %q", name, err, is.Pos.File, want)
				}
			}
		}
	}
}

// Progress ends at the size of the input, whatever was read of it.
func TestArchiveProgress(t *testing.T) {
	data := zipped(t, packed{"a", doc("a")}, packed{"b", noise(3 << 20)})
	last := int64(0)
	lines(t, Options{Progress: func(n int64) { last = n }}, onDisk(t, data))
	if last != int64(len(data)) {
		t.Errorf("%d of %d bytes", last, len(data))
	}
}
