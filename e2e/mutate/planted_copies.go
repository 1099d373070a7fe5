package main

// copiesBugs are bugs of the key-value store with several copies of each node.
var copiesBugs = []planted{
	{
		"clover copies: an append is acknowledged when one copy has it", "clover/copies.go",
		"for i := k - 1; i >= 0; i-- {",
		"for i := k - 1; i >= k-1; i-- {",
		"sim clover --replicas 2: not linearizable",
	},
	{
		"clover copies: a writer that loses on the last copy links its own node on the others", "clover/copies.go",
		"\t\t\t\tlink = found\n",
		"",
		"clover TestAWinnerThatDiesBlocksNoOtherClient",
	},
	{
		"clover copies: a writer that loses on the last copy leaves the others to the winner", "clover/copies.go",
		"\t\t\t\tlink = found\n",
		"\t\t\t\treturn was, nil\n",
		"clover TestAWinnerThatDiesBlocksNoOtherClient",
	},
	{
		"clover copies: an append on some copies is made again with another node", "clover/copies.go",
		"err = fmt.Errorf(\"%w: %v\", errOpen, err)",
		"err = fmt.Errorf(\"%w: %w\", errOpen, err)",
		"clover TestAnAppendOnSomeCopiesIsOpen",
	},
	{
		"clover/meta copies: the end of a chain is where the first copy ends", "clover/meta/walk.go",
		"case !more && s.copied() && !e.last:",
		"case !more && s.copied() && e.last:",
		"clover TestTheAppendOfADeadClientIsCompleted",
	},
	{
		"clover/meta copies: an open append is passed before all copies have it", "clover/meta/walk.go",
		"if e.last && !complete(s, e.at, header) {",
		"if e.last && s.fab == nil {",
		"clover TestTheAppendOfADeadClientIsCompleted",
	},
	{
		"clover/meta copies: one copy of a record is written", "clover/meta/walk.go",
		"\tdone := due\n\tfor j := range s.space.Backups + 1 {",
		"\tdone := due\n\tfor j := range 1 {",
		"clover TestCopiesSurviveTheMetadataServer",
	},
	{
		"clover/meta copies: a server with the only copies goes out", "clover/meta/view.go",
		"!slices.ContainsFunc(copies, good) && slices.ContainsFunc(copies, silent)",
		"!slices.ContainsFunc(copies, good) && len(copies) == 0",
		"clover TestTheOnlyCopyIsWaitedFor",
	},
	{
		"clover/meta copies: a change does not wait for leases", "clover/meta/view.go",
		"s.rt.Now() < s.change.until || ",
		"",
		"clover TestAChangeWaitsForLeases",
	},
	{
		"clover/meta copies: a change does not wait for fences", "clover/meta/view.go",
		"if !s.fences.Over(s.change.fence) {",
		"if s.change == nil {",
		"clover TestAChangeWaitsForFences",
	},
	{
		"clover/meta copies: a server comes back while another ends no connections", "clover/meta/view.go",
		"(!back || !mayBringBack(s, now))",
		"!back",
		"clover TestAServerThatServesDataOnlyStopsNoStore",
	},
	{
		"clover copies: a busy answer to OpHello extends the lease", "clover/call.go",
		" || op == rpc.OpHello {",
		" {",
		"clover TestABusyHelloIsNoLease",
	},
	{
		"clover copies: the former lease outlives OpHello", "clover/call.go",
		"\tc.lease.End()\n\tc.forgetLocations()",
		"\tc.forgetLocations()",
		"clover TestHelloEndsTheLease",
	},
	{
		"clover/meta copies: a restarted metadata server believes old copies", "clover/meta/copies.go",
		"s.memory[i].out = super.Out&(1<<i) != 0",
		"s.memory[i].out = false",
		"clover TestCopiesSurviveTheMetadataServer",
	},
	{
		"clover/meta copies: a server that is back gets the nodes of its own alone", "clover/meta/view.go",
		"\t\tfor j := range s.space.Backups + 1 {\n\t\t\tif err := s.fill(i, j)",
		"\t\tfor j := range 1 {\n\t\t\tif err := s.fill(i, j)",
		"clover TestCopiesSurviveCrashes",
	},
	{
		"clover/meta copies: free room has no weight", "clover/meta/balance.go",
		"int64(s.room(i)) * slowest /",
		"1000 * slowest /",
		"clover TestSlowAndFullServersTakeLess",
	},
	{
		"clover/meta copies: the time to answer has no weight", "clover/meta/balance.go",
		"max(1, int64(slow/max(1, fast)))",
		"max(1, int64(slow/max(1, slow)))",
		"clover TestSlowAndFullServersTakeLess",
	},
	{
		"cloversteer: a store with copies is steered", "swordbox/cloversteer/store.go",
		" || super.Space.Backups > 0",
		"",
		"swordbox/cloversteer TestStoreWithCopiesIsNotSteered",
	},
}
