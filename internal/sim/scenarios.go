package sim

import "time"

// Scenario is an engine whose requests wait for known reasons.
type Scenario struct {
	Name string
	// Main is the cause of most waiting, as [Wait] has it; empty: there are
	// several.
	Main string
	Engine
}

// Scenarios lists engines in which each cause is planted, alone and with
// others.
func Scenarios(seed uint64) []Scenario {
	const us, ms = time.Microsecond, time.Millisecond
	// engine has plenty of everything: 64 slots, memory and budget never short.
	engine := func(f func(*Engine)) Engine {
		e := Engine{
			Seed: seed, Service: "engine", Model: "demo-8b", Replicas: 1, Routing: RoundRobin,
			Slots: 64, Budget: 8192, Chunked: true, Limit: 6000,
			Base: 10 * ms, PerPrefill: 40 * us, PerDecode: 150 * us, PerResident: 60 * us,
			Tenants: []Tenant{
				{Name: "chat", Requests: 1200, Rate: 8, Prompt: Length{20, 600, 1}, Output: Length{10, 250, 1}},
				{Name: "docs", Requests: 300, Rate: 2, Prompt: Length{300, 1500, 0}, Output: Length{50, 200, 0}},
			},
		}
		f(&e)
		return e
	}
	rates := func(e *Engine, factor float64) {
		for i := range e.Tenants {
			e.Tenants[i].Rate *= factor
		}
	}
	slots := func(load float64) func(*Engine) {
		return func(e *Engine) { e.Slots = 16; rates(e, load) }
	}
	// memory is 40,000 tokens, the longest prompt 3,000.
	memory := func(load float64) func(*Engine) {
		return func(e *Engine) {
			e.Slots, e.Blocks, e.PerDecode = 256, 2500, 80*us
			e.Tenants[0].Output, e.Tenants[1].Output = Length{50, 500, 1}, Length{100, 500, 0}
			e.Tenants[1].Prompt = Length{500, 3000, 0}
			rates(e, load)
		}
	}
	// scant is 14,400 tokens, the longest prompt 5,000: who was pushed back and
	// does not fit holds up everyone.
	scant := func(load float64) func(*Engine) {
		return func(e *Engine) {
			e.Blocks = 900
			e.Tenants[1].Prompt = Length{1000, 5000, 1}
			rates(e, load)
		}
	}
	// big sends prompts of 5,000 tokens beside small ones.
	big := func(e *Engine) {
		e.Tenants[0].Requests, e.Tenants[0].Rate = 1500, 10
		e.Tenants[1] = Tenant{Name: "big", Requests: 150, Rate: 1, Prompt: Length{4000, 5500, 0}, Output: Length{10, 40, 0}}
	}
	four := func(f func(*Engine)) Engine {
		return engine(func(e *Engine) {
			e.Replicas, e.Slots, e.Routing = 4, 8, LeastLoaded
			e.Tenants = []Tenant{
				{Name: "a", Requests: 500, Rate: 5, Prompt: Length{20, 600, 1}, Output: Length{10, 250, 1}},
				{Name: "b", Requests: 500, Rate: 5, Prompt: Length{20, 600, 1}, Output: Length{10, 250, 1}},
				{Name: "c", Requests: 500, Rate: 5, Prompt: Length{20, 600, 1}, Output: Length{10, 250, 1}},
				{Name: "d", Requests: 500, Rate: 5, Prompt: Length{20, 600, 1}, Output: Length{10, 250, 1}},
			}
			f(e)
		})
	}
	return []Scenario{
		{"light", "", engine(func(*Engine) {})},
		{"slots, light", "slots", engine(func(e *Engine) { slots(0.5)(e); e.Tenants[0].Burst = 30 })},
		{"slots, near", "slots", engine(slots(1.1))},
		{"slots, over", "slots", engine(slots(2))},
		{"memory, light", "kv_cache", engine(func(e *Engine) { memory(0.5)(e); e.Tenants[0].Burst = 80; e.Tenants[1].Burst = 20 })},
		{"memory, near", "kv_cache", engine(memory(1))},
		{"memory, over", "kv_cache", engine(memory(1.6))},
		{"scant memory", "kv_cache", engine(scant(0.85))},
		{"slots and memory", "", engine(func(e *Engine) {
			memory(1.1)(e)
			e.Slots = 56
			e.Tenants[1].Burst = 30
		})},
		{"memory and small budget", "", engine(func(e *Engine) { memory(0.9)(e); e.Budget = 448 })},
		{"long prompts", "prefill", engine(func(e *Engine) { big(e); e.Budget = 2048 })},
		{"long prompts, 30,000 tokens", "prefill", engine(func(e *Engine) {
			big(e)
			e.Slots, e.Limit, e.Budget, e.Tenants[1].Rate = 128, 31000, 2048, 0.15
			e.Tenants[1].Requests, e.Tenants[1].Prompt = 22, Length{30000, 30000, 0}
		})},
		{"long prompts, not chunked", "prefill", engine(func(e *Engine) { big(e); e.Chunked = false })},
		{"small budget", "prefill", engine(func(e *Engine) { e.Budget = 192; e.Tenants[1].Prompt = Length{500, 2000, 0}; rates(e, 0.6) })},
		{"prefix cache", "prefill", engine(func(e *Engine) {
			big(e)
			e.Budget = 2048
			e.Tenants[0].Cached, e.Tenants[1].Cached = 0.5, 0.5
			e.Tenants[1].Requests, e.Tenants[1].Rate = 300, 2
		})},
		{"four balanced", "slots", four(func(e *Engine) { rates(e, 1.4) })},
		{"four sticky, one hot", "slots", four(func(e *Engine) {
			e.Routing = Sticky
			rates(e, 1.35)
			e.Tenants[2].Requests, e.Tenants[2].Rate = 650, 8.5
		})},
		{"one of four frozen", "stall", four(func(e *Engine) {
			e.Routing, e.Slots = RoundRobin, 32
			rates(e, 1.5)
			e.Freezes = []Freeze{{2, 40 * time.Second, 20 * time.Second}}
		})},
		{"short stalls", "slots", engine(func(e *Engine) {
			slots(1)(e)
			for i := range 6 {
				e.Freezes = append(e.Freezes, Freeze{0, time.Duration(15+20*i) * time.Second, 1800 * ms})
			}
		})},
		{"hold, nothing runs", "hold", engine(func(e *Engine) {
			e.Gather, e.GatherFor = 8, 2*time.Second
			e.Tenants[0].Output, e.Tenants[1].Output = Length{1, 4, 0}, Length{1, 4, 0}
			rates(e, 0.1)
		})},
		{"hold, others run", "hold", engine(func(e *Engine) { e.Gather, e.GatherFor = 8, 2*time.Second })},
		{"slots, hidden aborts", "slots", engine(func(e *Engine) { slots(1.3)(e); e.Tenants[0].Abort = 0.15 })},
		{"memory, hidden aborts", "kv_cache", engine(func(e *Engine) { memory(1.2)(e); e.Tenants[1].Abort = 0.15 })},
		{"few slots, bursty", "slots", engine(func(e *Engine) {
			e.Slots = 4
			e.Tenants[0] = Tenant{Name: "chat", Requests: 600, Rate: 2, Burst: 15, Prompt: Length{20, 100, 0}, Output: Length{2, 20, 0}}
			e.Tenants[1] = Tenant{Name: "docs", Requests: 100, Rate: 0.3, Burst: 10, Prompt: Length{300, 1500, 0}, Output: Length{200, 700, 0}}
		})},
		{"priorities", "slots", engine(func(e *Engine) { slots(1.2)(e); e.Tenants[1].Priority = 1 })},
		{"priorities, memory", "kv_cache", engine(func(e *Engine) { memory(1)(e); e.Tenants[1].Priority = 1 })},
	}
}
