package engine

import (
	"cmp"
	"slices"

	"github.com/traceview/traceview/trace"
)

// gateSpan is a span in front of an engine on which a request may wait.
type gateSpan struct {
	phase trace.Phase // what the time on it is, until the engine has the request
	rest  bool        // only what no span below it explains
	first bool        // only until the first span below it
}

// gatesOf returns the waits in front of the engine of the request i, which
// began at until at the latest.
func gatesOf(nodes []*node, links []link, i int32) []trace.Interval {
	var out []trace.Interval
	for g := links[i].gates; g >= 0; g = links[g].nextGate {
		n := nodes[g]
		a, okA := n.start.Get()
		z, okZ := n.end.Get()
		if !okA || !okZ {
			continue
		}
		phase := n.gate.phase
		pieces := []stretch{{a, z}}
		switch {
		case n.gate.rest:
			var told []stretch
			for c := links[g].child; c >= 0; c = links[c].next {
				if nodes[c].valid() {
					told = append(told, stretch{nodes[c].start.Or(0), nodes[c].end.Or(0)})
				}
			}
			pieces = without(pieces, union(told))
		case n.gate.first:
			first := int32(-1)
			for c := links[g].child; c >= 0; c = links[c].next {
				if t, ok := nodes[c].start.Get(); ok && t >= a && t <= z && (first < 0 || t < nodes[first].start.Or(0)) {
					first = c
				}
			}
			if first < 0 {
				continue
			}
			pieces[0].to = nodes[first].start.Or(0)
			if nodes[first].engine != "" && nodes[first].engine != rayServe {
				phase |= trace.Arrival
			}
		default:
			pieces[0].to = horizon // until the engine has it
		}
		for _, s := range pieces {
			if s.to > s.from {
				out = append(out, trace.Interval{Phase: phase, Basis: trace.Derived, Start: s.from, End: s.to})
			}
		}
	}
	return out
}

// between returns what of the gates lies in [from, to), each stretch once: the
// narrower phase where two differ.
func between(gates []trace.Interval, from, to trace.Time) (out []trace.Interval, covered []stretch) {
	sets := byPhase(gates)
	slices.SortFunc(sets, func(x, y claims) int {
		return cmp.Or(cmp.Compare(members(x.phase), members(y.phase)), cmp.Compare(x.phase, y.phase))
	})
	for _, c := range sets {
		for i := range c.all {
			c.all[i] = stretch{max(c.all[i].from, from), min(c.all[i].to, to)}
		}
		all := union(c.all)
		for _, s := range without(all, covered) {
			out = append(out, trace.Interval{Phase: c.phase, Basis: trace.Derived, Start: s.from, End: s.to})
		}
		covered = union(append(covered, all...))
	}
	return out, covered
}

func members(p trace.Phase) (n int) {
	for ; p != 0; p &= p - 1 {
		n++
	}
	return n
}

// adopt puts a request's span below the HTTP server's of its process where both
// have one parent: the engine takes its context from the request's headers, and
// so its span stands beside the server's, not below it. The server is the only
// one under way when the engine's span begins.
func adopt(nodes []*node, links []link) {
	servers := map[string][]int32{} // by parent, in order of their start
	for i, n := range nodes {
		if n.parentID != "" && n.kind == trace.KindServer && n.engine == "" && n.outer && n.phase == 0 {
			servers[n.parentID] = append(servers[n.parentID], int32(i))
		}
	}
	if len(servers) == 0 {
		return
	}
	requests := map[string][]int32{}
	taken := map[int32]bool{} // a server that has a request below it by itself
	for i, n := range nodes {
		if n.engine == "" {
			continue
		}
		if p := links[i].parent; p >= 0 {
			taken[p] = true
		}
		if servers[n.parentID] != nil && n.start.Present() && n.end.Present() {
			requests[n.parentID] = append(requests[n.parentID], int32(i))
		}
	}
	type place struct {
		parent string
		res    [2]string
	}
	for parent, rs := range requests {
		// By process, so that another's server is no candidate.
		byRes := map[place][]int32{}
		for _, i := range servers[parent] {
			if !taken[i] {
				k := place{parent, [2]string{nodes[i].res.service, nodes[i].res.replica}}
				byRes[k] = append(byRes[k], i)
			}
		}
		ends := map[place][]int32{}
		for k, is := range byRes {
			e := slices.Clone(is)
			slices.SortStableFunc(e, func(x, y int32) int { return cmp.Compare(nodes[x].end.Or(0), nodes[y].end.Or(0)) })
			ends[k] = e
		}
		type sweep struct {
			begun, ended, count int
			sum                 int64
		}
		sweeps := map[place]*sweep{}
		of := map[int32][]int32{} // requests by server
		for _, i := range rs {
			n := nodes[i]
			k := place{parent, [2]string{n.res.service, n.res.replica}}
			if byRes[k] == nil {
				continue
			}
			s := sweeps[k]
			if s == nil {
				s = &sweep{}
				sweeps[k] = s
			}
			at := n.start.Or(0)
			for s.begun < len(byRes[k]) && nodes[byRes[k][s.begun]].start.Or(0) <= at+rounding {
				s.count, s.sum = s.count+1, s.sum+int64(byRes[k][s.begun])
				s.begun++
			}
			for s.ended < len(ends[k]) && nodes[ends[k][s.ended]].end.Or(0) < at {
				s.count, s.sum = s.count-1, s.sum-int64(ends[k][s.ended])
				s.ended++
			}
			if s.count == 1 && n.end.Or(0) <= nodes[s.sum].end.Or(0)+rounding {
				of[int32(s.sum)] = append(of[int32(s.sum)], i)
			}
		}
		for server, is := range of {
			one := true
			for _, i := range is[1:] {
				one = one && oneRequest(nodes[is[0]], nodes[i])
			}
			if one {
				for _, i := range is {
					links[i].parent, links[i].odd = server, ""
				}
			}
		}
	}
}

// waitInside claims the waits of a request that is itself a gateway's span.
func waitInside(r *trace.Request, gates []trace.Interval) {
	a, okA := r.Arrival.Get()
	z, okZ := r.Completed.Get()
	if !okA || !okZ || len(gates) == 0 || r.Source.Engine != llmd && r.Source.Engine != rayServe {
		return
	}
	waits, _ := between(gates, a, z)
	r.Intervals = append(r.Intervals, waits...)
}
