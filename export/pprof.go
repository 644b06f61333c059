package export

import (
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/traceview/traceview/analyze"
)

// WritePprof writes stacks as a gzipped pprof profile, which go tool pprof,
// its web view and the services that read pprof show.
//
// A frame is a function of that name; its file name is the key that the frame
// is a value of (service, replica, phase), so that -files sums by
// key. There are no addresses and no lines. Labels are the format's labels,
// numbers with their unit. Time and duration of the profile are the observation
// window, left out where there is none. Absent is a label or time that is not
// there.
//
// The same stacks give the same bytes: neither the profile nor the gzip header
// carries a clock.
func WritePprof(w io.Writer, s *analyze.Stacks) error {
	p, err := toProfile(s)
	if err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	if err := p.Write(w); err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	return nil
}

func toProfile(s *analyze.Stacks) (*profile.Profile, error) {
	p := &profile.Profile{Comments: s.Comments}
	for i, t := range s.Types {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: t.Type, Unit: t.Unit})
		if i == s.Default {
			p.DefaultSampleType = t.Type
		}
	}
	if start, ok := s.Start.Get(); ok {
		p.TimeNanos = int64(start)
		if end, ok := s.End.Get(); ok && end > start {
			p.DurationNanos = int64(end - start)
		}
	}
	// The mapping says that all names are known, which keeps readers from
	// looking for a binary to find them in.
	m := &profile.Mapping{ID: 1, File: "requests", HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}
	p.Mapping = []*profile.Mapping{m}

	type frame struct{ name, key string }
	locations := make(map[frame]*profile.Location)
	for _, sample := range s.Samples {
		out := &profile.Sample{Value: sample.Values}
		for i := len(sample.Frames) - 1; i >= 0; i-- { // pprof has the leaf first
			f := frame{name: valid(sample.Frames[i])}
			if i < len(s.Keys) {
				f.key = valid(s.Keys[i])
			}
			loc := locations[f]
			if loc == nil {
				id := uint64(len(p.Location) + 1)
				fn := &profile.Function{ID: id, Name: f.name, SystemName: f.name, Filename: f.key}
				loc = &profile.Location{ID: id, Mapping: m, Line: []profile.Line{{Function: fn}}}
				p.Function = append(p.Function, fn)
				p.Location = append(p.Location, loc)
				locations[f] = loc
			}
			out.Location = append(out.Location, loc)
		}
		for _, l := range sample.Labels {
			if l.Unit == "" {
				if out.Label == nil {
					out.Label = make(map[string][]string)
				}
				out.Label[valid(l.Key)] = []string{valid(l.Text)}
				continue
			}
			if out.NumLabel == nil {
				out.NumLabel = make(map[string][]int64)
				out.NumUnit = make(map[string][]string)
			}
			out.NumLabel[valid(l.Key)] = []int64{l.Num}
			out.NumUnit[valid(l.Key)] = []string{l.Unit}
		}
		p.Sample = append(p.Sample, out)
	}
	return p, p.CheckValid()
}
