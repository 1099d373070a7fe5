package main

// phasesBugs attribute the time of operations wrongly: `rdmalab run` would blame the wrong part.
var phasesBugs = []planted{
	{
		"phases: time counts for the phase that begins", "store/kv/timeline.go",
		"t.spent[t.phase] += took",
		"t.spent[p] += took",
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
		"experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: Clover's calls of the metadata server count as the client's work", "clover/call.go",
		"defer c.rt.Leave(c.rt.Enter(kv.PhaseRPC))",
		"",
		"experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: Clover's round trips count as the client's work", "clover/client.go",
		"defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))",
		"",
		"experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: FUSEE's round trips count as calls", "fusee/memory.go",
		"from := m.rt.Enter(kv.PhaseTrip)",
		"from := m.rt.Enter(kv.PhaseRPC)",
		"experiment/insim TestBreakdownOfStores",
	},
	{
		"phases: the client's own work counts as time in the switch", "store/kv/timeline.go",
		"in := min(t.sw.InSwitch(), took); t.phase.trips()",
		"in := min(t.sw.InSwitch(), took); true",
		"store/kv TestPhaseSwitch",
	},
	{
		"phases: requests of an earlier phase count in the switch", "sim/simrack/transit.go",
		"if o.phase != o.by.phase {",
		"if false {",
		"sim/simrack TestTimeInTheSwitchOfEarlierPhases",
	},
	{
		"phases: a dropped packet stays in the switch", "sim/simrack/transit.go",
		"delete(t.last.inside, t.last.packet)",
		"",
		"sim/simrack TestTimeInTheSwitch",
	},
	{
		"phases: a request on a shared connection never leaves the switch", "sim/simrack/transit.go",
		"if d := wire.Diff(p.psn, m.psn); d >= 0 {",
		"if d := wire.Diff(p.psn, m.psn); d >= 0 && false {",
		"sim/simrack TestTimeInTheSwitchOfMovedRequests",
	},
	{
		"phases: a thread is charged for the requests of others", "sim/simrack/transit.go",
		"by := t.threads[b.net().Current()]",
		"var by *thread\n\tfor _, by = range t.threads {\n\t\tbreak\n\t}",
		"sim/simrack TestTimeInTheSwitchOfOtherThreads",
	},
	{
		"phases: published rules do not say what they move", "swordbox/published/serialize/request.go",
		"\t\tc.Moved(raw, id(p))\n",
		"",
		"sim/simrack TestTimeInTheSwitchOfMovedRequests",
	},
}
