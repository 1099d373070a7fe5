package main

// ringBugs are bugs of send rings.
var ringBugs = []planted{
	{
		"send ring: a WAIT compares without the wrap", "softrnic/sendring/ring.go",
		"	return int32(now-want) >= 0",
		"	return now >= want",
		"softrnic/sendring TestCountsWrap",
	},
	{
		"send ring: a WAIT passes at once", "softrnic/sendring/ring.go",
		"		if !r.reached(n, e.Count) {",
		"		if false && n > 0 {",
		"softrnic/sendring TestWaitHolds",
	},
	{
		"send ring: a managed ring is prefetched", "softrnic/sendring/ring.go",
		"			c.Prefetch = 1\n",
		"			c.Prefetch = 4\n",
		"softrnic/sendring TestWaitHolds",
	},
	{
		"send ring: an unmanaged ring reads each entry when it executes it", "softrnic/sendring/ring.go",
		"	DefaultPrefetch = 4",
		"	DefaultPrefetch = 1",
		"softrnic/engine TestIf",
	},
	{
		"send ring: a fence holds nothing", "softrnic/sendring/ring.go",
		"	case e.Flags&Fence != 0 && r.inFlight.reads > 0:",
		"	case e.Flags&Fence != 0 && r.inFlight.reads > 999:",
		"softrnic/engine TestRingFlags",
	},
	{
		"send ring: a NOP completes at once", "softrnic/sendring/inflight.go",
		"	if f == nil || f.posted {",
		"	if f == nil || f.posted && r.state != Full {",
		"softrnic/sendring TestBudgetAndOrder",
	},
	{
		"send ring: every success completes", "softrnic/sendring/inflight.go",
		"	deliver = f.signalled\n	r.inFlight.remove()\n	if",
		"	deliver = true\n	r.inFlight.remove()\n	if",
		"softrnic/engine TestRingFlags",
	},
	{
		"send ring: an ENABLE reaches rings of other protection domains", "softrnic/engine/rings.go",
		"	if to == nil || to.pd != h.qp.pd || to.ring == nil",
		"	if to == nil || to.ring == nil",
		"softrnic/engine TestRingRefuses",
	},
	{
		"send ring: a WAIT reads counts of other protection domains", "softrnic/engine/rings.go",
		"	if c == nil || !h.shares(c) {",
		"	if c == nil {",
		"softrnic/engine TestRingRefuses",
	},
	{
		"send ring: a bad entry completes in front of earlier ones", "softrnic/sendring/inflight.go",
		"	if r.state != Failing || r.inFlight.n > 0 {",
		"	if r.state != Failing {",
		"softrnic/engine TestRingRefuses",
	},
	{
		"send ring: an endless program has no budget", "softrnic/sendring/ring.go",
		"	for ran < budget && r.state == Ready {",
		"	for ran < 100*budget && r.state == Ready {",
		"softrnic/engine TestEndlessRing",
	},
	{
		"send ring: entries take no time", "softrnic/engine/rings.go",
		"	g.busy = now.Add(took)",
		"	g.busy = now.Add(took / 4)",
		"softrnic/engine TestEndlessRing",
	},
	{
		"send ring: entries of other queue pairs pass in checked mode", "softrnic/sendring/fetch.go",
		"e.Index != uint16(r.next) || e.QPN != r.qpn)",
		"e.Index != uint16(r.next))",
		"softrnic/engine TestRingRefuses",
	},
}
