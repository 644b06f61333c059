package vllmlog

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is what a message tells.
type kind uint8

const (
	other     kind = iota // nothing that matters here
	received              // a request came in
	details               // its prompt's length, at DEBUG
	added                 // it was handed to the engine
	finished              // V0: it is over
	aborted               // the caller left; several ids on one line
	failed                // it ended in an error
	refused               // it was no valid request
	generated             // its output, or a piece of it
	served                // the Rust front end: it is over, with token counts
	statistics
	preempted
	started  // the server did
	died     // the engine did
	stopping // the server was told to stop
	config   // limits, told while the server starts
)

// event is what one message says. Slices point into the line.
type event struct {
	kind kind
	torn bool   // the kind is clear, but the line is not whole
	id   []byte // of aborted: all ids with their commas; of served: external

	n, maxTokens  int // of received; -1: not said
	input, output int // tokens; -1: not said
	inputCut      int // characters of the prompt, to tell a cut list; -1: not said
	outputCut     int
	delta, stream bool   // of generated: a piece; the end of a stream
	reason, model []byte // of generated and served
	list          bool   // of aborted: the form that prints internal ids
	twin          bool   // of aborted: the form that follows another
	stats         stats
	limits        *limits // of config
}

// stats are the figures of a statistics line.
type stats struct {
	engine           int // -1: not named
	engines          int // of an aggregate; 0: none
	running, waiting int
	preemptions      int // -1: not told
	prompt, output   float64
	kv, prefix       float64 // shares; prefix −1: not told
}

// parse says what a message tells. The prefix is already gone. A message is
// read from its first byte: nothing inside a prompt can be taken for one.
func parse(m []byte) event {
	m = bytes.TrimRight(m, " \t\r\n")
	ev := event{n: -1, maxTokens: -1, input: -1, output: -1, inputCut: -1, outputCut: -1}
	if len(m) < 8 {
		return ev
	}
	if m[0] != 'R' && m[0] != 'G' { // these are whole or not at all
		m, _, _ = bytes.Cut(m, []byte("\n"))
		if m = bytes.TrimRight(m, " \t\r"); len(m) == 0 {
			return ev
		}
	}
	if ev.config(m) {
		return ev
	}
	switch m[0] {
	case 'R':
		if rest, ok := cut(m, "Received request "); ok {
			if hasPrefix(rest, "tokenize-") {
				return ev // the server counts tokens itself; the engine has no part in it
			}
			ev.kind = received
			ev.torn = !ev.received(rest)
		} else if rest, ok := cut(m, "Request "); ok {
			ev.request(rest)
		}
	case 'A':
		if rest, ok := cut(m, "Added request "); ok {
			ev.oneID(added, rest)
		} else if rest, ok := cut(m, "Aborted request(s) "); ok {
			ev.list = true
			ev.ids(rest)
		} else if rest, ok := cut(m, "Aborted request "); ok {
			ev.ids(rest)
		} else if hasPrefix(m, "Avg prompt t") {
			ev.statistics(m)
		} else if hasPrefix(m, "AsyncLLM output_handler failed") {
			ev.kind = died
		}
	case 'F':
		if rest, ok := cut(m, "Finished request "); ok {
			ev.oneID(finished, rest)
		}
	case 'G':
		if rest, ok := cut(m, "Generated response "); ok {
			ev.generated(rest)
		}
	case 'E':
		if rest, ok := cut(m, "Engine "); ok && isDigit(rest[0]) {
			ev.statistics(m)
		} else if hasPrefix(m, "EngineCore encountered a") || hasPrefix(m, "EngineCore failed to start") ||
			hasPrefix(m, "Engine background task failed") {
			ev.kind = died
		}
	case 'S':
		if rest, ok := cut(m, "Sequence group "); ok {
			if i := bytes.IndexByte(rest, ' '); i > 0 && hasPrefix(rest[i:], " is preempted by ") {
				ev.kind, ev.id = preempted, rest[:i]
			}
		} else if hasPrefix(m, "Started server process") {
			ev.kind = started
		}
	case 'D':
		if hasPrefix(m, "Dumping input data for V1 LLM engine") {
			ev.kind = died
		}
	case '[':
		if hasPrefix(m, "[shutdown] API server: shutdown triggered") {
			ev.kind = stopping
		}
	case 't':
		if hasPrefix(m, "torch.OutOfMemoryError: ") || hasPrefix(m, "torch.cuda.OutOfMemoryError: ") {
			ev.kind = died
		}
	case 'v':
		if hasPrefix(m, "vLLM API server version") {
			ev.kind = started
		}
	default:
		if isDigit(m[0]) {
			if i := bytes.IndexByte(m, ' '); i > 0 && hasPrefix(m[i:], " Engines Aggregated: ") {
				ev.statistics(m)
			}
		} else if m[0]-'a' < 26 {
			ev.served(m)
		}
	}
	return ev
}

func cut(s []byte, prefix string) ([]byte, bool) {
	if hasPrefix(s, prefix) && len(s) > len(prefix) {
		return s[len(prefix):], true
	}
	return s, false
}

func hasPrefix(s []byte, p string) bool { return len(s) >= len(p) && string(s[:len(p)]) == p }

const maxID = 512

// goodID reports whether an id is one: short, visible, and without the
// characters that end ids or that only text has. A line whose id is no id is
// torn or foreign, and what stands there may be part of a prompt.
func goodID(id []byte) bool {
	if len(id) == 0 || len(id) > maxID {
		return false
	}
	ascii := true
	for _, c := range id {
		switch {
		case c <= ' ' || c == 0x7f:
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		case c == '\'' || c == '"' || c == ',' || c == '\\' || c == '(' || c == ')' || c == '[' || c == ']' || c == '{' || c == '}':
			return false
		}
	}
	return ascii || utf8.Valid(id)
}

// received reads "<id>: [prompt: <repr>, ][sampling_]params: …(…), …." and
// reports whether it is whole.
func (ev *event) received(s []byte) bool {
	i := bytes.Index(s[:min(len(s), maxID+2)], []byte(": "))
	if i < 0 || !goodID(s[:i]) {
		return false
	}
	rest := s[i+2:]
	if hasPrefix(rest, "prompt: ") || hasPrefix(rest, "params: ") || hasPrefix(rest, "sampling_params: ") {
		ev.id = s[:i]
	}
	return ev.id != nil && ev.fields(rest) && rest[len(rest)-1] == '.'
}

// fields reads "key: value, key: value." to its end.
func (ev *event) fields(s []byte) bool {
	for {
		i := bytes.Index(s[:min(len(s), 64)], []byte(": "))
		if i <= 0 {
			return false
		}
		key, ok := s[:i], false
		s = s[i+2:]
		n := -1
		switch string(key) {
		case "prompt":
			if len(s) > 0 && (s[0] == '\'' || s[0] == '"') {
				s, ev.inputCut, ok = skipString(s)
			} else {
				s, ok = skipValue(s, nil)
			}
		case "output":
			if len(s) > 0 && (s[0] == '\'' || s[0] == '"') {
				s, ev.outputCut, ok = skipString(s)
			} else {
				s, ok = skipValue(s, nil)
			}
		case "prompt_token_ids":
			if s, n, ok = countInts(s); ok {
				ev.input = n
			}
		case "output_token_ids":
			if s, n, ok = countInts(s); ok {
				ev.output = n
			}
		case "params", "sampling_params":
			s, ok = skipValue(s, ev.param)
		case "finish_reason":
			ev.reason, s, ok = s, nil, true
		default:
			s, ok = skipValue(s, nil)
		}
		if !ok {
			return false
		}
		if len(s) == 0 {
			return true
		}
		if len(s) == 1 && s[0] == '.' {
			return true
		}
		if !hasPrefix(s, ", ") {
			return false
		}
		s = s[2:]
	}
}

// param looks at one field of SamplingParams(…).
func (ev *event) param(s []byte) {
	if rest, ok := cut(s, "n="); ok {
		if n, _, ok := number(rest); ok {
			ev.n = n
		}
	} else if rest, ok := cut(s, "max_tokens="); ok {
		if n, _, ok := number(rest); ok {
			ev.maxTokens = n
		}
	}
}

// oneID reads "<id>." to its end.
func (ev *event) oneID(k kind, s []byte) {
	ev.kind = k
	id, ok := bytes.CutSuffix(s, []byte("."))
	if !ok || !goodID(id) {
		ev.torn = true
		return
	}
	ev.id = id
}

// ids reads "<id>[,<id>…]." to its end.
func (ev *event) ids(s []byte) {
	ev.kind = aborted
	s, ok := bytes.CutSuffix(s, []byte("."))
	ev.torn = !ok
	for id := range bytes.SplitSeq(s, []byte(",")) {
		if !goodID(bytes.TrimSpace(id)) {
			ev.torn = true
		}
	}
	if !ev.torn {
		ev.id = s
	}
}

// request reads what follows "Request ".
func (ev *event) request(s []byte) {
	i := bytes.IndexByte(s[:min(len(s), maxID+2)], ' ')
	if i < 0 || !goodID(s[:i]) {
		return
	}
	id, rest := s[:i], s[i+1:]
	switch {
	case string(rest) == "aborted.":
		ev.kind, ev.twin = aborted, true
	case hasPrefix(rest, "details: "):
		ev.kind = details
		ev.torn = !ev.fields(rest[len("details: "):]) || rest[len(rest)-1] != '.'
	case hasPrefix(rest, "failed (bad request)"), hasPrefix(rest, "failed (input error)"):
		ev.kind = refused
	case hasPrefix(rest, "failed (engine dead)"), string(rest) == "failed.", hasPrefix(rest, "failed due to "):
		ev.kind = failed
	default:
		return
	}
	ev.id = id
}

// generated reads what follows "Generated response ".
func (ev *event) generated(s []byte) {
	i := bytes.IndexAny(s[:min(len(s), maxID+2)], " :")
	for i > 0 && s[i] == ':' && (i+1 == len(s) || s[i+1] != ' ') { // a colon inside the id
		j := bytes.IndexAny(s[i+1:min(len(s), maxID+2)], " :")
		if j < 0 {
			i = -1
			break
		}
		i += 1 + j
	}
	if i < 0 || !goodID(s[:i]) {
		ev.kind, ev.torn = generated, true
		return
	}
	id, rest := s[:i], s[i:]
	delta, stream := false, false
	if r, ok := cut(rest, " (streaming delta)"); ok {
		delta, rest = true, r
	} else if r, ok := cut(rest, " (streaming complete)"); ok {
		stream, rest = true, r
	}
	if hasPrefix(rest, " details: ") {
		return // follows the line that it belongs to
	}
	ev.kind, ev.delta, ev.stream = generated, delta, stream
	rest, ok := cut(rest, ": ")
	ev.torn = !ok || !ev.fields(rest)
	ev.id = id
	if ev.torn {
		ev.reason = nil
	} else if ev.reason == nil {
		ev.torn = true
	} else {
		ev.reason = word(ev.reason)
	}
}

// word returns a short name, without the quotes around it; nil for what is
// none.
func word(s []byte) []byte {
	s = bytes.Trim(bytes.TrimSuffix(s, []byte(".")), `'"`)
	if len(s) > 32 {
		return nil
	}
	for _, c := range s {
		if c != '_' && c != '-' && !isDigit(c) && c|0x20-'a' >= 26 {
			return nil
		}
	}
	return s
}

// served reads the Rust front end's "scope{k=v …}: … finished k=v …".
func (ev *event) served(m []byte) {
	var id []byte
	for {
		i := 0
		for i < len(m) && i < 64 && (m[i] == '_' || m[i]-'a' < 26 || isDigit(m[i])) {
			i++
		}
		if i == 0 || i == len(m) || m[i] != '{' {
			break
		}
		end := bytes.IndexByte(m[:min(len(m), 4*maxID)], '}')
		if end < 0 {
			return
		}
		for field := range bytes.FieldsSeq(m[i+1 : end]) {
			if v, ok := cut(field, "request_id="); ok {
				id = bytes.Trim(v, `"`)
			}
		}
		m = m[end+1:]
		if hasPrefix(m, ": ") {
			m = m[2:]
			break
		}
		if !hasPrefix(m, ":") {
			return
		}
		m = m[1:]
	}
	for _, head := range [...]string{"completion finished ", "chat completion finished ", "generate finished "} {
		rest, ok := cut(m, head)
		if !ok {
			continue
		}
		ev.kind = served
		if id != nil && !goodID(id) {
			ev.torn = true
			return
		}
		ev.id = id
		for field := range bytes.FieldsSeq(rest) {
			key, v, ok := bytes.Cut(field, []byte("="))
			n, tail, isNum := number(v)
			isNum = isNum && len(tail) == 0
			switch {
			case !ok:
			case string(key) == "stream":
				ev.stream = string(v) == "true"
			case string(key) == "model":
				if v = bytes.Trim(v, `"`); goodID(v) {
					ev.model = v
				}
			case string(key) == "prompt_tokens" && isNum:
				ev.input = n
			case string(key) == "output_tokens" && isNum:
				ev.output = n
			case string(key) == "finish_reason":
				ev.reason = word(v)
			}
		}
		ev.torn = ev.output < 0
		return
	}
}

// statistics reads the engine's own figures, of all versions.
func (ev *event) statistics(m []byte) {
	ev.kind, ev.torn = statistics, true
	st := stats{engine: -1, running: -1, waiting: -1, preemptions: -1, prompt: -1, output: -1, kv: -1, prefix: -1}
	if rest, ok := cut(m, "Engine "); ok {
		n, rest, ok := number(rest)
		if !ok || !hasPrefix(rest, ": ") {
			return
		}
		if !hasPrefix(rest, ": Avg ") {
			ev.kind, ev.torn = other, false // another line of that engine
			return
		}
		st.engine, m = n, rest[2:]
	} else if isDigit(m[0]) {
		n, rest, ok := number(m)
		if !ok {
			return
		}
		st.engines = n
		m, _ = cut(rest, " Engines Aggregated: ")
	}
	swapped := 0
	for part := range bytes.SplitSeq(bytes.TrimSuffix(m, []byte(".")), []byte(", ")) {
		i := bytes.LastIndex(part, []byte(": "))
		if i < 0 {
			continue // of a list: "KV fetch: 2 waiting to start, 1 in progress"
		}
		text, _, _ := bytes.Cut(part[i+2:], []byte(" "))
		text, percent := bytes.CutSuffix(text, []byte("%"))
		if len(text) > 32 {
			return
		}
		figure := string(text)
		if percent {
			figure += "e-2" // a share, read exactly
		}
		v, err := strconv.ParseFloat(figure, 64)
		if err != nil || !(v >= 0 && v < 1e15) {
			return
		}
		switch name := string(part[:i]); name {
		case "Avg prompt throughput", "Avg prompt tput":
			st.prompt = v
		case "Avg generation throughput", "Avg generation tput":
			st.output = v
		case "Running", "Reqs Running":
			st.running = int(v)
		case "Waiting", "Pending":
			st.waiting = int(v)
		case "Swapped":
			swapped = int(v)
		case "Preemptions":
			st.preemptions = int(v)
		case "Prefix cache hit rate":
			st.prefix = v
		default:
			// Of the device, whose name comes first: GPU, CPU, XPU. V0 adds the
			// CPU's, to which it swaps.
			if st.kv < 0 && (strings.HasSuffix(name, "KV cache usage") || strings.HasSuffix(name, "KV cache used")) {
				st.kv = v
			}
		}
	}
	if st.waiting >= 0 {
		// Swapped sequences were preempted and wait, as V1's waiting ones do.
		st.waiting += swapped
	}
	if hasPrefix(m, "Avg prompt throughput") {
		// Python resets this counter before it prints it: it says nothing.
		st.preemptions = -1
	}
	ev.stats = st
	ev.torn = st.prompt < 0 || st.output < 0 || st.running < 0 || st.waiting < 0 || st.kv < 0
}
