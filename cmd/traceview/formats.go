package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/ingest"
)

// formatKinds are the formats of the command formats.
var formatKinds = []string{"text", "json"}

func newFormats(env *environment) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "formats",
		Short: "What is read, by what it is recognised, and what it cannot tell",
		Long: `formats lists the formats that are read, and the engines whose spans are
recognised in them: by what content each is known, what comes out of it, and
what it cannot tell. The suffix of a file's name means nothing.`,
		Example: `  traceview formats
  traceview formats --format json | jq -r '.formats[].name'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			format, err := chooseFormat(format, "", "text", formatKinds)
			if err != nil {
				return err
			}
			if format == "json" {
				return writeFormatsJSON(env.stdout)
			}
			return writeFormats(env.stdout, width(env.stdout))
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "`FORMAT`: text, json (default text)")
	return cmd
}

// writeFormats writes the lists as text of at most that many columns.
func writeFormats(w io.Writer, columns int) error {
	var b strings.Builder
	entry := func(name string, lines ...[2]string) {
		fmt.Fprintf(&b, "\n%s\n", name)
		for _, l := range lines {
			if l[1] != "" {
				wrapTo(&b, fmt.Sprintf("  %-15s ", l[0]), l[1], columns)
			}
		}
	}
	b.WriteString("Formats, in the order in which they are tried. All may be compressed, and lie in\narchives and folders.\n")
	for _, f := range ingest.Formats() {
		entry(f.Name, [2]string{"recognised by", f.Evidence}, [2]string{"yields", f.Yields}, [2]string{"cannot tell", f.NotTold})
	}
	b.WriteString("\nEngines, whose spans are recognised in all formats of spans.\n")
	for _, e := range ingest.Engines() {
		entry(e.Name, [2]string{"recognised by", e.Evidence}, [2]string{"read from", e.Version}, [2]string{"does not tell", e.NotTold})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrapTo writes text behind a head, broken between words, later lines indented
// as far as the head is long.
func wrapTo(b *strings.Builder, head, text string, columns int) {
	indent := len(head)
	b.WriteString(head)
	at := indent
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case at+1+n > columns:
			fmt.Fprintf(b, "\n%*s", indent, "")
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
}

// writeFormatsJSON writes the lists as one object.
func writeFormatsJSON(w io.Writer) error {
	type format struct {
		Name     string `json:"name"`
		Evidence string `json:"recognised_by"`
		Yields   string `json:"yields"`
		NotTold  string `json:"cannot_tell"`
	}
	type engine struct {
		Name     string `json:"name"`
		Evidence string `json:"recognised_by"`
		Version  string `json:"read_from"`
		NotTold  string `json:"does_not_tell"`
	}
	var all struct {
		Formats []format `json:"formats"`
		Engines []engine `json:"engines"`
	}
	for _, f := range ingest.Formats() {
		all.Formats = append(all.Formats, format(f))
	}
	for _, e := range ingest.Engines() {
		all.Engines = append(all.Engines, engine(e))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(all)
}
