package main

// phasesBugs attribute the time of operations wrongly: `rdmalab run` would blame the wrong part.
var phasesBugs = []planted{
	{
		"phases: time counts for the phase that begins", "store/kv/timeline.go",
		"t.spent[t.phase] += now.Sub(t.since)",
		"t.spent[p] += now.Sub(t.since)",
		"store/kv TestBreakdown",
	},
	{
		"phases: a pause in a lock is not back-off", "store/kv/timeline.go",
		"from := t.Enter(PhaseBackOff)",
		"from := t.phase",
		"store/kv TestBreakdown",
	},
	{
		"phases: the CAS of a lock counts as the first round trip", "store/kv/timeline.go",
		"if from == PhaseLock {",
		"if from == PhaseQueue {",
		"store/kv TestBreakdown",
	},
	{
		"phases: Sherman's wait for a lock counts as round trips", "sherman/locks.go",
		"defer c.rt.Leave(c.rt.Enter(kv.PhaseLock))",
		"",
		"topo/experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: Clover's calls of the metadata server count as the client's work", "clover/call.go",
		"defer c.rt.Leave(c.rt.Enter(kv.PhaseRPC))",
		"",
		"topo/experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: Clover's round trips count as the client's work", "clover/client.go",
		"defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))",
		"",
		"topo/experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: FUSEE's round trips count as calls", "fusee/memory.go",
		"from := m.rt.Enter(kv.PhaseTrip)",
		"from := m.rt.Enter(kv.PhaseRPC)",
		"topo/experiment/insim TestBreakdownOfStores",
	},
}
