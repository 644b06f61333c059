package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the module's version as the build knows it: a tag, a revision, or
// "devel".
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func versionText() string {
	return fmt.Sprintf("traceview %s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersion(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(env.stdout, versionText())
			return err
		},
	}
}

// noArgs refuses operands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no operands, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}
