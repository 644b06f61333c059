// Package sim is ground truth: models of a server that know of every request
// when it waited and when it ran, and writers that tell of it in the formats
// of real engines, with defects on order. All of it is invented, deterministic
// and exact: a seed decides everything, and times are integer nanoseconds.
//
//   - [Queue] is the small model that "traceview simulate" shows: one worker
//     and a batching policy.
//   - [Engine] is a continuous-batching engine: replicas, slots, a token budget
//     a step, KV blocks with preemption, tenants, failures.
//     [Run.Waits] is why each request waited, and who held the replica;
//     [Scenarios] are engines in which each cause is planted.
//   - [V1], [V0], [ChildSpans], [Gateway] and [Unknown] are the truth as spans,
//     [Encode] puts spans into a container, [Log] is the truth as a text log.
//     The Visible functions say what a perfect reader of each must return.
//   - [Defects] are spoilt traces and the issues that they must raise.
package sim

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/traceview/traceview/trace"
)

// Base is the instant at which every simulation starts: 2025-10-09 08:53:20
// UTC.
const Base trace.Time = 1_760_000_000_000_000_000

// Scope is the instrumentation scope of spans that imitate no engine.
const Scope = "traceview.sim"

// mix turns a number into one that looks random (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// traceID and spanID name the n-th trace of a seed and the k-th span of it.
// They are never all zero.
func traceID(seed uint64, n int) string {
	var b [16]byte
	h := mix(seed ^ mix(uint64(n)))
	binary.BigEndian.PutUint64(b[:8], h)
	binary.BigEndian.PutUint64(b[8:], mix(h)|1)
	return hex.EncodeToString(b[:])
}

func spanID(seed uint64, n, k int) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(seed^mix(uint64(n)<<8|uint64(k)))|1)
	return hex.EncodeToString(b[:])
}
