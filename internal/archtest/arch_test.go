// Package archtest holds the rules of who may import whom.
//
// The rules are read off the files themselves: a test that asks the go command
// would be answered from the cache after a rule was broken, since the files
// would not be among what the test opened.
package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/traceview/traceview"

// may lists what a package's files (tests apart) may import of the module,
// beyond internal/units and internal/stats, which all but those two may.
// A folder that is not listed may import nothing.
var may = map[string][]string{
	"trace":                    {},
	"internal/units":           {},
	"internal/stats":           {},
	"internal/scan":            {"trace"},
	"internal/reqtext":         {"trace"},
	"internal/sim":             {"trace"},
	"internal/archtest":        {},
	"ingest":                   {"trace", "ingest/otlp", "ingest/engine", "ingest/spanfile", "ingest/records", "ingest/vllmlog", "internal/scan"},
	"ingest/otlp":              {"trace", "internal/scan"},
	"ingest/spanfile":          {"trace", "internal/scan"},
	"ingest/records":           {"trace", "internal/scan"},
	"ingest/engine":            {"trace"},
	"ingest/vllmlog":           {"trace"},
	"ingest/receive":           {"trace", "ingest/otlp"}, // bytes come in, and go to files that ingest reads
	"analyze":                  {"trace"},
	"export":                   {"trace", "analyze"},
	"cmd/traceview":            {"trace", "ingest", "ingest/receive", "analyze", "export", "internal/sim"},
	"samples/cmd/gen":          {"internal/sim", "trace"},
	"internal/sim/cmd/samples": {"internal/sim", "trace"},
	"bench/gen":                {"internal/sim", "trace"},
}

// testsMay is what test files may import besides.
var testsMay = []string{"internal/sim", "internal/reqtext"}

// third lists the packages that may import a module of others.
var third = map[string][]string{
	"github.com/google/pprof": {"export"},
	// export writes its tables with it; ingest/spanfile reads what stores write,
	// and internal/sim writes the same for its tests.
	"github.com/parquet-go/parquet-go":    {"export", "ingest/spanfile", "internal/sim"},
	"go.opentelemetry.io/collector/pdata": {"ingest/otlp", "ingest/receive", "internal/sim"},
	"go.opentelemetry.io/proto/otlp":      {"ingest/otlp", "internal/sim"},
	"google.golang.org/protobuf":          {"ingest/otlp", "ingest/receive", "internal/sim"},
	"google.golang.org/grpc":              {"ingest/receive"},
	"google.golang.org/genproto":          {"ingest/receive"},
	"go.opentelemetry.io/otel":            {"internal/sim", "internal/sim/cmd/samples"},
	"github.com/klauspost/compress":       {"ingest", "ingest/receive", "internal/sim", "internal/sim/cmd/samples"},
	"github.com/rivo/uniseg":              {"export"},
	"github.com/spf13/cobra":              {"cmd/traceview"},
	"github.com/spf13/pflag":              {"cmd/traceview"},
	"golang.org/x/term":                   {"cmd/traceview"},
	"golang.org/x/sync":                   {},
	"github.com/google/go-cmp":            nil, // any test
	"github.com/rogpeppe/go-internal":     nil, // any test
}

// thirdInTests lists the packages whose tests may import one besides.
var thirdInTests = map[string][]string{
	"github.com/parquet-go/parquet-go": {"cmd/traceview"},                   // adds up the files that the command wrote
	"go.opentelemetry.io/otel":         {"ingest/receive", "cmd/traceview"}, // the clients that people have
}

type file struct {
	path, dir string // slash-separated, from the module's root
	test      bool
	imports   []string
}

func read(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || p != root && strings.HasPrefix(d.Name(), ".")) && d.Name() != ".." {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		out := file{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go")}
		for _, im := range f.Imports {
			name, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				return err
			}
			out.imports = append(out.imports, name)
		}
		files = append(files, out)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestImports(t *testing.T) {
	files := read(t)
	if len(files) < 20 {
		t.Fatalf("found only %d files: the walk is broken", len(files))
	}
	for _, f := range files {
		for _, im := range f.imports {
			if why := forbidden(f, im); why != "" {
				t.Errorf("%s imports %s: %s", f.path, im, why)
			}
		}
	}
}

func forbidden(f file, im string) string {
	if in, ok := strings.CutPrefix(im, module+"/"); ok {
		allowed, known := may[f.dir]
		switch {
		case !known:
			return "the folder " + f.dir + " has no rule; give it one"
		case in == "internal/units" || in == "internal/stats":
			if f.dir == "internal/units" || f.dir == "internal/stats" || f.dir == "trace" {
				return "it imports the standard library only"
			}
		case in == f.dir || has(allowed, in) || f.test && has(testsMay, in):
		default:
			return "not in the direction of the data"
		}
		return ""
	}
	first, _, _ := strings.Cut(im, "/")
	if !strings.Contains(first, ".") {
		return "" // standard library
	}
	for mod, dirs := range third {
		if im != mod && !strings.HasPrefix(im, mod+"/") {
			continue
		}
		if dirs == nil && f.test || has(dirs, f.dir) || f.test && has(thirdInTests[mod], f.dir) {
			return ""
		}
		return "that module has its home elsewhere"
	}
	return "a dependency without a rule; give it one, and its reason in the commit"
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// The rule must bite: these have been seen to fail in the real tree.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		dir, im string
		test    bool
		bad     bool
	}{
		{"analyze", module + "/ingest", false, true},
		{"analyze", module + "/ingest", true, true},
		{"trace", module + "/internal/units", false, true},
		{"trace", "github.com/google/go-cmp/cmp", false, true},
		{"trace", "github.com/google/go-cmp/cmp", true, false},
		{"analyze", "github.com/google/pprof/profile", false, true},
		{"ingest/engine", "go.opentelemetry.io/collector/pdata/ptrace", false, true},
		{"cmd/traceview", "github.com/parquet-go/parquet-go", false, true},
		{"cmd/traceview", "github.com/parquet-go/parquet-go", true, false},
		{"ingest/receive", "google.golang.org/grpc", false, false},
		{"ingest", "google.golang.org/grpc/codes", false, true},
		{"ingest/receive", "go.opentelemetry.io/otel/sdk/trace", false, true},
		{"ingest/receive", "go.opentelemetry.io/otel/sdk/trace", true, false},
		{"ingest/engine", module + "/internal/sim", false, true},
		{"ingest/engine", module + "/internal/sim", true, false},
		{"export", module + "/analyze", false, false},
		{"export", "example.com/new/thing", false, true},
		{"util", module + "/trace", false, true},
		{"trace", "sort", false, false},
	} {
		if why := forbidden(file{dir: c.dir, test: c.test}, c.im); (why != "") != c.bad {
			t.Errorf("%s imports %s (test %v): %q", c.dir, c.im, c.test, why)
		}
	}
}
