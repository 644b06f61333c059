package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/traceview/traceview/trace"
)

// workloadStep is the clock's step in a workload's form.
func workloadStep(form Records) time.Duration {
	switch form {
	case AzureTrace:
		return 100
	case BurstGPT:
		return time.Second
	}
	return time.Millisecond
}

// writeWorkload writes arrivals and lengths, as they are published: rounded down
// to the form's step.
func writeWorkload(w io.Writer, rs []*trace.Request, form Records) error {
	switch form {
	case AzureTrace:
		fmt.Fprint(w, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
	case BurstGPT:
		fmt.Fprintln(w, "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type")
	}
	for i, r := range VisibleWorkload(rs, form) {
		in, out := or0(r.Input), or0(r.Output)
		var err error
		switch form {
		case AzureTrace:
			_, err = fmt.Fprintf(w, "%s,%d,%d\r\n", time.Unix(0, int64(r.Arrival.At)).UTC().Format("2006-01-02 15:04:05.0000000+00:00"), in, out)
		case BurstGPT:
			_, err = fmt.Fprintf(w, "%d,%s,%d,%d,%d,API log\n", r.Arrival.At/1e9, r.Model, in, out, in+out)
		case Bailian:
			_, err = fmt.Fprintf(w, `{"chat_id": %d, "parent_chat_id": -1, "timestamp": %d.%03d, "input_length": %d, "output_length": %d, "type": "text", "turn": 1, "hash_ids": [%d]}`+"\n", i, r.Arrival.At/1e9, r.Arrival.At%1e9/1e6, in, out, i)
		default:
			_, err = fmt.Fprintf(w, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [%d]}`+"\n", r.Arrival.At/1e6, in, out, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// VisibleWorkload is what a workload's form tells of requests.
func VisibleWorkload(rs []*trace.Request, form Records) []*trace.Request {
	var list []*trace.Request
	step := workloadStep(form)
	for i, r := range rs {
		c := &trace.Request{
			Clock: trace.ClockRelative, Resolution: step, Arrival: r.Arrival,
			Input: trace.Some(or0(r.Input)), Output: trace.Some(or0(r.Output)), Outcome: trace.Incomplete,
		}
		if form == AzureTrace {
			c.Clock = trace.ClockUnix
		} else {
			c.Arrival.At -= rs[0].Arrival.At
		}
		c.Arrival.At -= c.Arrival.At % trace.Time(step)
		switch form {
		case Bailian:
			c.ID = fmt.Sprint(i)
		case BurstGPT:
			c.Model = r.Model
			if or0(r.Output) == 0 {
				c.Outcome = trace.Error
			}
		}
		list = append(list, c)
	}
	return list
}
