package analyze

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/traceview/traceview/trace"
)

// AddLimits takes an engine's statement of its limits into account: what is
// not stated by the user or by attributes is taken from it, at the replica
// that has its service and name, or at the only one where it names none.
func (ws *Waits) AddLimits(l trace.EngineLimits) { ws.told = append(ws.told, l) }

// fromLog fills in what engines' logs say of the limits of p's engine while it
// served. Limits that changed in that time are not used, since a replica has
// one of each.
func (ws *Waits) fromLog(l *Limits, p *replicaWork, alone bool) {
	type server struct{ file, replica string }
	byServer := map[server][]trace.EngineLimits{}
	for _, t := range ws.told {
		own := t.Service == p.key.service && t.Replica == p.key.replica
		unnamed := t.Service == "" && t.Replica == ""
		if t.Clock == p.key.clock && (own || alone && unnamed) {
			k := server{t.Source.Pos.File, t.Replica}
			byServer[k] = append(byServer[k], t)
		}
	}
	if len(byServer) == 0 {
		return
	}
	from, to := ws.extent(p.rows)
	for _, x := range []struct {
		to *Limit
		of func(*trace.EngineLimits) trace.Opt[int64]
	}{
		{&l.Slots, func(t *trace.EngineLimits) trace.Opt[int64] { return t.Slots }},
		{&l.Budget, func(t *trace.EngineLimits) trace.Opt[int64] { return t.Budget }},
		{&l.KV, func(t *trace.EngineLimits) trace.Opt[int64] { return t.KVTokens }},
	} {
		if x.to.Value.Present() {
			continue
		}
		var value trace.Opt[int64]
		differ := false
		for _, told := range byServer {
			slices.SortStableFunc(told, func(a, b trace.EngineLimits) int { return cmp.Compare(a.At.At, b.At.At) })
			for i := range told {
				began, dated := told[i].At.Get()
				if dated && int64(began) > to {
					continue // it served later
				}
				if i+1 < len(told) && told[i+1].At.Present() && int64(told[i+1].At.At) <= from {
					continue // or before
				}
				if v, ok := x.of(&told[i]).Get(); ok {
					differ = differ || value.Or(v) != v
					value = trace.Some(v)
				}
			}
		}
		switch v, ok := value.Get(); {
		case differ:
			l.Changed = true
		case ok:
			*x.to = known(v, LimitLog)
		}
	}
}

// extent is from when to when rows waited and ran.
func (ws *Waits) extent(rows []uint32) (from, to int64) {
	from, to = math.MaxInt64, math.MinInt64
	for _, i := range rows {
		r := ws.rows.at(i)
		for _, s := range ws.spansOf(r) {
			from, to = min(from, s.start), max(to, s.end)
		}
		if r.runEnd > r.runStart {
			from, to = min(from, r.runStart), max(to, r.runEnd)
		}
	}
	return from, to
}

// engineAt reports whether a reading's replica is this one, or one of the
// engines of this server: "vllm-1 engine 0" of "vllm-1".
func engineAt(reading, replica string) bool {
	rest, ok := strings.CutPrefix(reading, replica)
	if rest == "" || !ok {
		return ok
	}
	if replica != "" {
		if rest, ok = strings.CutPrefix(rest, " "); !ok {
			return false
		}
	}
	number, ok := strings.CutPrefix(rest, "engine ")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

// engineLimits adds what logs say of limits to the lines of their engines. A
// statement that names no engine is about all of its server's.
func (w *work) engineLimits() {
	told := slices.Clone(w.told)
	slices.SortStableFunc(told, func(x, y trace.EngineLimits) int {
		return cmp.Or(cmp.Compare(x.At.At, y.At.At), cmp.Compare(x.Source.Pos.File, y.Source.Pos.File), cmp.Compare(x.Source.Pos.Line, y.Source.Pos.Line),
			cmp.Compare(x.Replica, y.Replica))
	})
	for _, t := range told {
		state := func(e *EngineState) {
			for _, x := range []struct{ to, from *trace.Opt[int64] }{{&e.Slots, &t.Slots}, {&e.Budget, &t.Budget}, {&e.KVTokens, &t.KVTokens}} {
				if x.from.Present() {
					*x.to = *x.from
				}
			}
		}
		found := false
		for i := range w.rep.Engines {
			e := &w.rep.Engines[i]
			if e.Engine == t.Source.Engine && e.Service == t.Service && engineAt(e.Replica, t.Replica) {
				found = true
				state(e)
			}
		}
		if at, ok := t.At.Get(); ok && !found {
			e := EngineState{Engine: t.Source.Engine, Service: t.Service, Replica: t.Replica, File: t.Source.Pos.File, StartNS: int64(at), EndNS: int64(at)}
			state(&e)
			w.rep.Engines = append(w.rep.Engines, e)
		}
	}
}
