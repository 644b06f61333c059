package main

import (
	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/trace"
)

// engineLimits are the flags that say what causes and blame need to know and
// the input may not say.
type engineLimits struct {
	slots, budget, kv int64
	blame             string
}

func (l *engineLimits) addFlags(cmd *cobra.Command) {
	l.addLimits(cmd)
	f := cmd.Flags()
	f.StringVar(&l.blame, "blame", "scarce", "charge holders by what they hold of the thing that is `scarce`, or in equal shares: scarce, equal")
}

// addLimits adds the flags of the limits alone, where nobody is charged.
func (l *engineLimits) addLimits(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int64Var(&l.slots, "max-num-seqs", 0, "how many `REQUESTS` an engine runs at once")
	f.Int64Var(&l.budget, "max-num-batched-tokens", 0, "how many `TOKENS` an engine computes in a step")
	f.Int64Var(&l.kv, "kv-tokens", 0, "how many `TOKENS` fit into an engine's KV cache")
}

// options returns what was stated.
func (l *engineLimits) options(cmd *cobra.Command) (opts analyze.WaitOptions, err error) {
	for _, x := range []struct {
		flag string
		v    int64
		to   *trace.Opt[int64]
	}{
		{"max-num-seqs", l.slots, &opts.Slots},
		{"max-num-batched-tokens", l.budget, &opts.Budget},
		{"kv-tokens", l.kv, &opts.KVTokens},
	} {
		if !cmd.Flags().Changed(x.flag) {
			continue
		}
		if x.v < 1 {
			return opts, usagef("--%s: %d is not above zero", x.flag, x.v)
		}
		*x.to = trace.Some(x.v)
	}
	switch l.blame {
	case "", "scarce":
	case "equal":
		opts.Equal = true
	default:
		return opts, usagef("--blame: %q is neither scarce nor equal", l.blame)
	}
	return opts, nil
}
