package main

// fuseeBugs are bugs of the hash table.
var fuseeBugs = []planted{
	{
		"fusee: a master that was hung takes servers for crashed", "fusee/master.go",
		"if hung = now > m.awake.Add(m.c.cfg.Lease/2); hung {",
		"if hung = false; hung {",
		"fusee TestAHungMasterLosesNoServer",
	},
	{
		"fusee: a former master is not ended", "fusee/master.go",
		"if former != 0 {",
		"if former != 0 && former == c.id {",
		"fusee TestAHungMasterDoesNothingAfterItsSuccessor",
	},
	{
		"fusee: a loser is free while a backup names it", "fusee/recover.go",
		"if winner == before {",
		"if winner != 0 {",
		"fusee TestNoReplicaNamesALoserThatIsUsedAgain",
	},
	{
		"fusee: the version of an object is ignored", "fusee/find.go",
		"return err == nil && f.object.Version == r.Version, nil",
		"return err == nil, nil",
		"fusee TestAnObjectThatIsReadLateIsAnotherOne",
	},
	{
		"fusee: a dead client's connections are not ended", "fusee/recover.go",
		"err := memservice.Fence(c.cfg.Context, c.cfg.Manager, to, owner, deadline)",
		"_, err := to, error(nil)\n\t\t\t_ = memservice.Fence",
		"sim fusee",
	},
	{
		"fusee: a master does not end the connections of clients", "fusee/master.go",
		"n, err := memservice.DisconnectOthers(c.cfg.Context, c.cfg.Manager, to, c.id, limit)",
		"_, _, n, err := to, memservice.DisconnectOthers, c.id, error(nil)",
		"sim fusee",
	},
	{
		"fusee: a master leaves replicas of the index different", "fusee/master.go",
		"if err := r.all(); err != nil {",
		"if err := r.words8(layout.DepthWord, 8, false); err != nil {",
		"sim fusee",
	},
	{
		"fusee: a new primary gives out numbers that clients have", "fusee/introduce.go",
		"if err != nil || uint64(found) >= uint64(last) {",
		"if err != nil || last > 0 {",
		"sim fusee",
	},
	{
		"fusee: an INSERT on a server that was lost remains pending", "fusee/repair.go",
		"if layout.Mark(marks[8*i]) != layout.Pending {",
		"if layout.Mark(marks[8*i]) > layout.Invalid {",
		"sim fusee",
	},
	{
		"fusee: a block that is left counts as empty", "fusee/blocks.go",
		"if room == len(b.used) {",
		"if room > 0 {",
		"sim fusee",
	},
	{
		"fusee: objects of a left block have their first versions again", "fusee/blocks.go",
		"return layout.UseLeft(units, b.last(), room)",
		"return layout.UseLeft(units, b.last()-b.last(), room)",
		"sim fusee",
	},
	{
		"fusee: a dead client's INSERT becomes valid", "fusee/recover.go",
		"case mark == layout.Valid:",
		"case mark > layout.Invalid:",
		"sim fusee",
	},
	{
		"fusee: frees that a dead client has lost are not looked for", "fusee/recover.go",
		"c.lose() // frees",
		"_ = c.lose // frees",
		"fusee TestFreesOfADeadClientAreFound",
	},
	{
		"fusee: a dead client's block keeps only the versions that its objects show", "fusee/recover.go",
		"newBlock(h.blockID, h.use, h.use.Version(), 0, shape)",
		"newBlock(h.blockID, h.use, 0, 0, shape)",
		"fusee TestATornObjectHasNoEarlierVersion",
	},
	{
		"fusee: an object has versions that its block does not have yet", "fusee/space.go",
		"if o.versions[o.i] >= o.word.Version() {",
		"if o.versions[o.i] == layout.MaxVersion {",
		"fusee TestATornObjectHasNoEarlierVersion",
	},
	{
		"fusee: a version follows the last one", "fusee/blocks.go",
		"b.versions[i] < layout.MaxVersion }",
		"b.versions[i] <= layout.MaxVersion }",
		"fusee TestNoVersionFollowsTheLastOne",
	},
	{
		"fusee: a client that was hung takes a winner for dead that has gone on", "fusee/replicate.go",
		"&& asked >= lease {",
		"&& (c.rt.Now() >= lease || asked > deadline) {",
		"fusee TestAWaiterThatWasHungFencesNoOther",
	},
	{
		"fusee: a client that was hung takes another INSERT for dead that has gone on", "fusee/insert.go",
		"c.rival.last < c.rival.since.Add(c.cfg.Lease)",
		"c.rt.Now() < c.rival.since.Add(c.cfg.Lease)",
		"fusee TestARivalThatWasHungFencesNoOther",
	},
	{
		"fusee: a block whose taking over has failed is kept", "fusee/client.go",
		", c.settleLimbo(deadline)); err",
		"); err",
		"fusee TestABlockThatWasNotTakenOverIsLeft",
	},
	{
		"fusee: a PUT that has lost to a move reports success", "fusee/ops.go",
		"won, err = c.overtaken(e, deadline)",
		"won = true",
		"sim fusee",
	},
	{
		"fusee: pending keys are left behind by a split", "fusee/split.go",
		"s.blocked, suspect = true, m.slot",
		"suspect = m.slot",
		"sim fusee",
	},
	{
		"fusee: slots that keys have left are not cleaned", "fusee/move.go",
		"s.does = clean",
		"s.does = settle",
		"sim fusee",
	},
	{
		"fusee: a client does not notice that a subtable was split", "fusee/sight.go",
		"case !v.entry.Splitting || h.Depth != v.entry.Depth+1:\n\t\treturn open, false",
		"case !v.entry.Splitting || h.Depth != v.entry.Depth+1:\n\t\treturn open, true",
		"sim fusee",
	},
	{
		"fusee: a sweep does not count objects whose keys are being moved", "fusee/sweep.go",
		"e.slot = format.Left(e.slot, v.hash.Fingerprint())",
		"continue",
		"sim fusee",
	},
}
