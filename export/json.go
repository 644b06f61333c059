package export

import (
	"encoding/json"
	"io"

	"github.com/traceview/traceview/analyze"
)

// WriteJSON writes a report as one JSON object.
func WriteJSON(w io.Writer, r *analyze.Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
