// Package analyze turns requests into results: where their time went, how it
// is distributed, which groups wait most and what makes the tail slow. It reads
// [trace.Request] and knows nothing of how requests were written or of how
// results are shown; package export shows them.
package analyze

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/traceview/traceview/trace"
)

// derivedKeys are the keys that Key answers from the record itself. They come
// before an attribute of the same name.
var derivedKeys = map[string]func(*trace.Request) (string, bool){
	"service":       func(r *trace.Request) (string, bool) { return r.Service, r.Service != "" },
	"model":         func(r *trace.Request) (string, bool) { return r.Model, r.Model != "" },
	"replica":       func(r *trace.Request) (string, bool) { return r.Replica, r.Replica != "" },
	"engine":        func(r *trace.Request) (string, bool) { return r.Source.Engine, r.Source.Engine != "" },
	"source":        func(r *trace.Request) (string, bool) { return r.Source.Format, r.Source.Format != "" },
	"file":          func(r *trace.Request) (string, bool) { return r.Source.Pos.File, r.Source.Pos.File != "" },
	"outcome":       func(r *trace.Request) (string, bool) { return r.Outcome.String(), true },
	"finish_reason": func(r *trace.Request) (string, bool) { return r.FinishReason, r.FinishReason != "" },
	"prompt_bucket": func(r *trace.Request) (string, bool) { return bucket(r.Input) },
	"output_bucket": func(r *trace.Request) (string, bool) { return bucket(r.Output) },
}

// DerivedKeys lists the keys that every request has beside its attributes,
// sorted.
func DerivedKeys() []string {
	var keys []string
	for k := range derivedKeys {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Key returns r's value of a grouping key: one of [DerivedKeys], else the
// attribute of that name. ok is false where the data do not say.
func Key(r *trace.Request, key string) (value string, ok bool) {
	if f := derivedKeys[key]; f != nil {
		return f(r)
	}
	v, ok := r.Attr(key)
	return v.String(), ok
}

// bucket names the power-of-two bucket of a token count: "0", "1", "2-3",
// "4-7", "512-1023".
func bucket(n trace.Opt[int]) (string, bool) {
	v, ok := n.Get()
	if !ok {
		return "", false
	}
	lo, hi := BucketBounds(v)
	if lo == hi {
		return strconv.Itoa(lo), true
	}
	return strconv.Itoa(lo) + "-" + strconv.Itoa(hi), true
}

// BucketBounds returns the least and the largest count of the power-of-two
// bucket that n is in.
func BucketBounds(n int) (lo, hi int) {
	if n <= 0 {
		return 0, 0
	}
	lo = 1 << (bits.Len(uint(n)) - 1)
	return lo, 2*lo - 1
}
