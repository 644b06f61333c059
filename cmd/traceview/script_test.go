package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"traceview": main})
}

// TestScripts runs testdata/script: a run of the command in one text each, with
// its input, output and status.
func TestScripts(t *testing.T) {
	samples, err := filepath.Abs(filepath.Join(root, "samples"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("SAMPLES", samples)
			env.Setenv("GOFLAGS", os.Getenv("GOFLAGS"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status,
		},
	})
}

// status runs a command and wants that exit status: "status 2 traceview x".
// Its standard error goes to the file "stderr", its output to "stdout".
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = exitStatus(err)
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

func exitStatus(err error) string {
	type coder interface{ ExitCode() int }
	if c, ok := err.(coder); ok {
		return string(rune('0' + c.ExitCode()))
	}
	return err.Error()
}
