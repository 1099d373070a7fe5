package main

// lookupBugs are bugs of the lookup table in servers' memory.
var lookupBugs = []planted{
	{
		"lookuptable: a torn slot is taken for another key's", "swordbox/lookuptable/server.go",
		"\tcase half:\n\t\tl.Found = Torn\n",
		"\tcase half:\n\t\tl.Found = Miss\n",
		"sim/scenario TestTornEntriesAreNoticed",
	},
	{
		"lookuptable: an entry in the cache overtakes packets in flight", "swordbox/lookuptable/table.go",
		"if !l.Busy(h) {",
		"if h != 0 || !l.Busy(h) {",
		"sim lookup: comes behind",
	},
	{
		"framering: an entry is taken for the right one", "swordbox/framering/ring.go",
		"!r.cfg.Trusting && !r.right(&h, at)",
		"!r.cfg.Trusting && !r.right(&h, at) && at == 0",
		"sim lookup",
	},
	{
		"lookuptable: the IPv4 checksum of a rewritten packet stays", "swordbox/lookuptable/action.go",
		"\tif !v.v6 {\n\t\tfix(b[v.ip+10:], delta)\n\t}\n",
		"",
		"sim lookup: arrives at",
	},
	{
		"lookuptable: the IPv4 checksum of a marked packet stays", "swordbox/lookuptable/action.go",
		"\tfix(ip[10:], grows(was[:], ip[:2]))\n",
		"\t_ = was\n",
		"sim lookup: arrives at",
	},
	{
		"lookuptable: ports are added to an unfinished checksum", "swordbox/lookuptable/action.go",
		"if !f.CsumPartial {",
		"if f.Data != nil {",
		"swordbox/lookuptable TestActionsKeepChecksums",
	},
	{
		"lookuptable: an entry moves on beyond its reach", "swordbox/lookuptable/place.go",
		"base+free-home(&x.Key) >= Probe",
		"base+free-home(&x.Key) > Probe",
		"swordbox/lookuptable TestEveryEntryIsFoundDuringChanges",
	},
	{
		"lookuptable: a change leaves the second copy of its entry", "swordbox/lookuptable/place.go",
		"for j := i + 1; j < min(n, Probe); j++ {",
		"for j := i + 1; j < min(i, Probe); j++ {",
		"swordbox/lookuptable TestChangesThatEndHalfway",
	},
	{
		"lookuptable: a change that is made again takes another slot", "swordbox/lookuptable/place.go",
		"unread(span, i, home(&x.Key)-base, &x.Key)",
		"false",
		"swordbox/lookuptable TestChangesThatEndHalfway",
	},
	{
		"lookuptable: a slot of a former table makes a later one a copy", "swordbox/lookuptable/place.go",
		"if home > i || i-home >= Probe {",
		"if i < 0 {",
		"swordbox/lookuptable TestEntriesOverAFormerTable",
	},
	{
		"lookuptable: the cache keeps entries of a memory that is gone", "swordbox/lookuptable/machine.go",
		"if g.Boot != l.grant.Boot || g.Region != l.grant.Region {",
		"if g.Region != l.grant.Region {",
		"swordbox/lookuptable TestCacheForgetsAnotherMemory",
	},
	{
		"lookuptable: changes that wait are forgotten with the table", "swordbox/lookuptable/writer.go",
		"list = append(list, x.again())",
		"list = slices.Clone(list)",
		"swordbox/lookuptable TestChangesThatWaitForAnotherRule",
	},
	{
		"rules: a table and counters share memory", "swordbox/rules/memory.go",
		"q.Action != r.Action && ",
		"q.Action == r.Action && ",
		"swordbox/apps/swordbox TestRulesNeedTheirOwnMemory",
	},
	{
		"lookuptable: an entry of another flow is taken", "swordbox/lookuptable/slot.go",
		"if e.Key == *k {",
		"if e.Key.Dst == k.Dst {",
		"sim lookup",
	},
	{
		"lookuptable: an entry does not choose the port", "swordbox/lookuptable/table.go",
		"if a.Ops&OpEgress != 0 {",
		"if a.Ops&OpEgress != 0 && in < 0 {",
		"sim lookup: arrives at",
	},
	{
		"lookuptable: two changes take the same slot", "swordbox/lookuptable/writer.go",
		" && !b.near(b.queue[0].home) {",
		" {",
		"sim lookup: are in the table",
	},
	{
		"lookuptable: packets that did not come back are not counted", "swordbox/lookuptable/server.go",
		"\t\tb.table.stats.Lost += uint64(b.ring.Count(number))\n",
		"\t\tb.ring.Count(number)\n",
		"sim lookup: says where",
	},
	{
		"lookuptable: the cache keeps an entry that has changed", "swordbox/lookuptable/table.go",
		"\tt.cache.remove(k, k.Hash())\n",
		"",
		"sim/scenario TestEntriesChangeWhilePacketsAreLookedUp",
	},
	{
		"lookuptable: a lookup fills the cache with an entry that has changed since", "swordbox/lookuptable/table.go",
		"case l.changes == t.changes:",
		"case l.changes <= t.changes:",
		"sim/scenario TestEntriesChangeWhilePacketsAreLookedUp",
	},
	{
		"lookuptable: few bits of a port reach the choice of the server", "swordbox/lookuptable/rule.go",
		"int(h * 0x9e3779b97f4a7c15 >> 40 %",
		"int(h >> 40 %",
		"swordbox/lookuptable TestKeysAreSpread",
	},
	{
		"framering: an exact READ brings too little", "swordbox/framering/ring.go",
		"return int(r.lengths[at%uint64(len(r.lengths))])",
		"return HeaderLen",
		"swordbox/framering TestFramesComeBackInOrder",
	},
	{
		"lookuptable: READs of cells bring whole cells", "swordbox/lookuptable/server.go",
		"Exact: true, ",
		"",
		"experiment/insim TestLookups",
	},
	{
		"lookuptable: the checksum of an ICMP error does not follow what it quotes", "swordbox/lookuptable/icmp.go",
		"fix(b[v.l4+2:], grows(old, b[q.ip:to]))",
		"fix(b[v.l4+2:], grows(old, old))",
		"swordbox/lookuptable TestErrorsBehindNAT",
	},
	{
		"lookuptable: a router's error gets another source", "swordbox/lookuptable/icmp.go",
		"!whole && !flow {",
		"!whole {",
		"swordbox/lookuptable TestErrorsOfRouters",
	},
}
