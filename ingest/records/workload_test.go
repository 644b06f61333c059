package records

import (
	"strings"
	"testing"
)

const (
	mooncakeTwo = `{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1]}` + "\n" + `{"timestamp": 3052, "input_length": 7234, "output_length": 794, "hash_ids": [0, 28]}` + "\n"
	bailianTwo  = `{"chat_id": 55, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 12, "output_length": 13, "type": "text", "turn": 1, "hash_ids": [1]}` + "\n" +
		`{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521, "output_length": 132, "type": "text", "turn": 2, "hash_ids": [1]}` + "\n"
	azureTwo = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
	burstTwo = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n"
)

func TestWorkloads(t *testing.T) {
	azure := "azure-llm-trace\n incomplete unix/100ns 0s - - - - - in=4808 out=10 !zone-assumed\n incomplete unix/100ns 52ms - - - - - in=3180 out=8"
	burst := "burstgpt\n incomplete relative/1s 0s - - - - - in=472 out=18\n error relative/1s 40s - - - - - in=1087 out=0 (no tokens)"
	for _, tt := range []struct{ name, in, want string }{
		{"mooncake", mooncakeTwo, "mooncake\n incomplete relative/1ms 0s - - - - - in=6755 out=500\n incomplete relative/1ms 3.052s - - - - - in=7234 out=794"},
		{"mooncake, odd", `{"timestamp": -1, "input_length": 1, "output_length": 2}` + "\n" + `{"timestamp": "x", "input_length": -5, "output_length": 2.5}` + "\n" + `{"session_id": "a", "input_length": 1, "output_length": 2, "delay": 3}` + "\n" + `{"timestamp": 1.25, "input_length": null, "output_length": 2}`,
			"mooncake\n incomplete relative/1ms - - - - - - in=1 out=2 !time-out-of-range\n" +
				" incomplete relative/1ms - - - - - - !bad-number !bad-number !bad-number !no-arrival\n" +
				" incomplete relative/1ms - - - - - - in=1 out=2 !no-arrival\n" +
				" incomplete relative/10µs 0s - - - - - out=2\n!unread-field"},
		{"mooncake since 1970", `{"timestamp": 1770000000000, "input_length": 1, "output_length": 2}`, "mooncake\n incomplete unix/1ms 0s - - - - - in=1 out=2"},
		{"mooncake, torn", mooncakeTwo[:120], "mooncake\n incomplete relative/1ms 0s - - - - - in=6755 out=500\n!truncated"},
		{"mooncake, a key twice", `{"timestamp": 1, "timestamp": 2, "input_length": 1, "output_length": 2}`, "mooncake\n incomplete relative/1ms - - - - - - in=1 out=2 !duplicate-key !no-arrival"},
		{"bailian", bailianTwo, "bailian\n55 incomplete relative/1ms 0s - - - - - in=12 out=13\n159 incomplete relative/1ms 1m1.114s - - - - - in=521 out=132"},

		{"azure", azureTwo, azure},
		{"azure with a mark, quotes and CRLF", "\xef\xbb\xbf" + strings.NewReplacer("\n", "\r\n", "ContextTokens", `"ContextTokens"`, "4808", `"4808"`).Replace(azureTwo), azure},
		{"azure of 2024", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n", "azure-llm-trace\n incomplete unix/1µs 0s - - - - - in=2162 out=5"},
		{"azure in other order, with another column", "GeneratedTokens;TIMESTAMP;x;ContextTokens\n10;2023-11-16 18:17:03.9799600;;4808\n", "azure-llm-trace\n incomplete unix/100ns 0s - - - - - in=4808 out=10 !zone-assumed\n!unread-field"},
		{"azure, a column twice", "TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n2024-05-10 00:00:00Z,1,2,3\n", "azure-llm-trace\n!duplicate-key\n incomplete unix/1s 0s - - - - - out=2"},
		{"azure, bad cells", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1e3,-2\n,1.5,\n2024-05-10 00:00:00Z,374.0,44\n",
			"azure-llm-trace\n incomplete unix/100ns - - - - - - in=1000 !bad-field !bad-number !no-arrival\n incomplete unix/100ns - - - - - - !bad-number !no-arrival\n incomplete unix/1s 0s - - - - - in=374 out=44"},
		{"azure, bad lines", azureTwo[:len(azureTwo)-1] + "\n1,2\n\n\"x,1,2\n" + "2023-11-16 18:17:04", azure + "\n!bad-row\n!bad-row\n!truncated"},
		{"azure, a last line without its end", azureTwo[:len(azureTwo)-1], azure + " !truncated"},
		{"azure, a header alone", azureTwo[:40], "azure-llm-trace\n"},

		{"burstgpt", burstTwo, burst},
		{"burstgpt, a sum that is none", strings.Replace(burstTwo, ",490,", ",500,", 1), strings.Replace(burst, "out=18", "out=18 !bad-field", 1)},
		{"another table", "a,b\n1,2\n", "not recognised"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decode(t, tt.in); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// A line beyond the limit costs itself; where it is the header, the table.
func TestLongRow(t *testing.T) {
	in := azureTwo + strings.Repeat("x", 200) + "\n" + "2023-11-16 18:17:05.0,1,2\n"
	if got := read(t, &AzureTrace, in, 100); strings.Count(got, "incomplete") != 3 || !strings.Contains(got, "!record-too-large") {
		t.Error(got)
	}
	if got := read(t, &AzureTrace, in, 30); got != "!record-too-large" {
		t.Error(got)
	}
}
