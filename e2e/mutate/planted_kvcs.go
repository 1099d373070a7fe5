package main

// kvcsBugs are bugs of the service kvcs. Its histories must show them.
var kvcsBugs = []planted{
	{
		"kvcs: a change has one step", "store/kvcs/table.go",
		"	shown.state = pending\n",
		"	shown = e.next\n",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a pending slot is read", "store/kvcs/client.go",
		"	case best.state == pending:\n",
		"	case best.state == pending && best.cell > 1<<30:\n",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a replica without progress is not fenced", "store/kvcs/member.go",
		"		c.fence(now, m, out)\n",
		"		c.remove(m)\n",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a REKEY that is not OK is a fence", "store/kvcs/member.go",
		"s == nic.OK {",
		"s != nic.NACK {",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: the coordinator does not wait for the end of leases", "store/kvcs/member.go",
		"m.granted.Add(c.cfg.Lease+c.cfg.Lease/32)",
		"m.granted.Add(c.cfg.Lease/8)",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a client returns what it has read without a lease", "store/kvcs/client.go",
		"case x == failed || after >= c.lease:",
		"case x == failed:",
		"store/kvcs TestLeaseEndsInAGet",
	},
	{
		"kvcs: a server that begins again keeps its key", "store/kvcs/server.go",
		"	s.region, s.key, err = s.cfg.Lend()\n",
		"	if s.region == 0 {\n		s.region, s.key, err = s.cfg.Lend()\n	}\n",
		"store/kvcs TestKeyOfAnInstance",
	},
	{
		"kvcs: a replica is named before it has all changes", "store/kvcs/member.go",
		"&& m.acked >= c.effective {",
		"{",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a late request is executed", "store/kvcs/coordinator.go",
		"case m.number < s.number || m.number == 0 ||",
		"case m.number == 0 ||",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a server executes records over a gap", "store/kvcs/server.go",
		"m.number != s.position+1",
		"m.number <= s.position",
		"sim kvcs",
	},
	{
		"kvcs: the version of a cell is not compared", "store/kvcs/layout.go",
		" && binary.LittleEndian.Uint64(b[8:]) == s.version &&",
		" &&",
		"store/kvcs TestCellOfAnotherChange",
	},
	{
		"kvcs: the checksum of a cell is not compared", "store/kvcs/layout.go",
		" && binary.LittleEndian.Uint32(b[20:]) == sum\n",
		" && sum == sum\n",
		"store/kvcs TestCellOfAnotherChange",
	},
	{
		"kvcs: a client goes on with another store", "store/kvcs/client.go",
		"	if c.store != 0 && c.store != m.store {\n",
		"	if c.store != m.store {\n		c.view.epoch = 0\n	}\n	if m.kind == 0 {\n",
		"sim kvcs: not linearizable",
	},
	{
		"kvcs: a coordinator uses a server with a part of another store's table", "store/kvcs/member.go",
		"m.instance != x.id || x.store != c.store:",
		"m.instance != x.id:",
		"store/kvcs TestStoresAreKeptApart",
	},
	{
		"kvcs: a session is anybody's who knows its number", "store/kvcs/coordinator.go",
		"s == nil || s.addr != from {",
		"s == nil {",
		"store/kvcs FuzzCoordinator",
	},
	{
		"kvcs: a replica that asks again goes without a fence", "store/kvcs/member.go",
		"x.id <= c.last[from.Addr()]",
		"x.id < c.last[from.Addr()]",
		"store/kvcs FuzzCoordinator",
	},
	{
		"kvcs: a host's clients do not end with it", "store/kvcs/plugin/node.go",
		"		errs = append(errs, n.clients.close())\n",
		"",
		"topo/hostd TestKVCS",
	},
	{
		"kvcs: clients that have gone keep others out", "store/kvcs/coordinator.go",
		"now.Sub(s.seen) > sessionLeases*c.cfg.Lease",
		"now.Sub(s.seen) > 32*sessionLeases*c.cfg.Lease",
		"store/kvcs TestClientsThatHaveGone",
	},
	{
		"kvcs: clients that avoid all replicas ask a dead one again and again", "store/kvcs/health.go",
		"	x.last = now\n",
		"",
		"store/kvcs TestAvoidedReplicasHaveTheirTurns",
	},
	{
		"kvcs: each READ that was in flight doubles the time", "store/kvcs/health.go",
		"case began >= x.noted:",
		"default:",
		"store/kvcs TestREADsInFlightTogetherCountOnce",
	},
	{
		"kvcs: an outage makes clients avoid replicas for long", "store/kvcs/health.go",
		"if x.period == 0 || x.until <= began {",
		"{",
		"store/kvcs TestAvoidedReplicasHaveTheirTurns",
	},
}
