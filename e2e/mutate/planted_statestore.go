package main

// stateBugs are bugs of counting in servers' memory.
var stateBugs = []planted{
	{
		"statestore: what was in flight when a connection failed is sent again", "swordbox/statestore/channel.go",
		"\tcase requester.Lost:\n\t\tst.Uncertain += s.amount\n\tcase requester.Returned, requester.Refused:",
		"\tcase requester.Lost, requester.Returned, requester.Refused:",
		"sim state-store",
	},
	{
		"statestore: what was refused is forgotten", "swordbox/statestore/channel.go",
		"\t\tif !ch.add(s.offset, s.amount) {\n\t\t\tst.Dropped += s.amount\n\t\t}\n\tdefault:",
		"\tdefault:",
		"swordbox/statestore TestEndsOfConnections",
	},
	{
		"statestore: what waits is sent with the next request alone", "swordbox/statestore/machine.go",
		"\tch.conn.Packet(c, &p.Frame)\n\tch.pump(c)\n",
		"\tch.conn.Packet(c, &p.Frame)\n",
		"sim state-store: wait in the switch",
	},
	{
		"statestore: more are in flight than the server's NIC remembers", "swordbox/statestore/channel.go",
		"return min(ch.depth, ch.conn.Link().Depth)",
		"return ch.depth",
		"swordbox/statestore TestTheServersDepthIsKept",
	},
	{
		"journal: a crash of the switch forgets what was pending", "swordbox/journal/behind.go",
		"sum := le.Uint64(r.b[formerAt:]) + le.Uint64(r.b[behindAt:])",
		"sum := le.Uint64(r.b[formerAt:])",
		"sim state-store: less than",
	},
	{
		"swordbox: a request that overtakes another one is not counted", "swordbox/apps/swordbox/observe.go",
		"} else if e.watch.early.add(expected, psn) {",
		"} else if e.early.add(expected, psn) && psn == expected {",
		"swordbox/apps/swordbox TestOvertakingRequestCountsOnce",
	},
	{
		"swordbox: a damaged request is counted", "swordbox/apps/swordbox/observe.go",
		"\tif !q.Intact() {",
		"\tif p == nil {",
		"swordbox/apps/swordbox TestDamagedRequestIsNotCounted",
	},
	{
		"swordbox: a damaged request of an unknown connection is counted", "swordbox/apps/swordbox/program.go",
		"at.rule != nil && q.Intact() {",
		"at.rule != nil {",
		"swordbox/apps/swordbox TestDamagedRequestIsNotCounted",
	},
}
