package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCodes holds that every issue code is described, is raised somewhere and
// is expected by some test: by its constant or, in a script, by its text. A
// code that nothing raises is a promise in the README that nobody keeps.
func TestCodes(t *testing.T) {
	root := filepath.Join("..", "..")
	home := filepath.Join(root, "trace", "codes.go")
	codes, described := declared(t, home)
	if len(codes) < 30 {
		t.Fatalf("found only %d codes in %s: the reading of it is broken", len(codes), home)
	}
	raised, tested := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		test := strings.HasSuffix(p, "_test.go") || strings.HasSuffix(p, ".txtar")
		if p == home || strings.HasPrefix(filepath.Base(p), "codes_test") || !test && !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		into := raised
		if test {
			into = tested
		}
		for _, w := range regexp.MustCompile(`[\w-]+`).FindAllString(string(text), -1) {
			into[w] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range codes {
		if !described[name] {
			t.Errorf("%s has no row in trace.Codes", name)
		}
		if !raised[name] {
			t.Errorf("nothing raises %s (%q)", name, text)
		}
		if !tested[name] && !tested[text] {
			t.Errorf("no test expects %s (%q)", name, text)
		}
	}
}

// declared returns the constants of type Code with their texts, and those that
// the table Codes names.
func declared(t *testing.T, path string) (codes map[string]string, described map[string]bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes, described = map[string]string{}, map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if typ, ok := n.Type.(*ast.Ident); ok && typ.Name == "Code" && len(n.Values) == 1 {
				lit, ok := n.Values[0].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s is no plain string", n.Names[0].Name)
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes[n.Names[0].Name] = text
				return false
			}
		case *ast.Ident:
			described[n.Name] = true
		}
		return true
	})
	return codes, described
}
