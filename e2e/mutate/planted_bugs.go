package main

// plantedBugs are bugs of the stores. make planted tries them.
var plantedBugs = []planted{
	{
		"clover: a node kept though its append is open", "clover/link.go",
		"out.unused = !uncertain && (",
		"out.unused = (",
		"clover TestNodeOfAnOpenAppendIsNotUsedAgain",
	},
	{
		"clover: an old connection is not ended", "clover/client.go",
		"Owner: c.lease.owner, Replaces: s.conn}",
		"Owner: c.lease.owner}",
		"clover TestLateAppendOfAFormerConnectionIsNotExecuted",
	},
	{
		"clover: the generation of memory is not compared", "clover/client.go",
		" || super.Generation != s.generation",
		"",
		"clover TestMemoryOfAnotherGenerationIsNotUsed",
	},
	{
		"clover/meta: retired before the directory is written", "clover/meta/walk.go",
		"if !e.recorded || !e.mirrored {\n\t\treturn\n\t}",
		"if !e.recorded {\n\t\treturn\n\t}",
		"clover/meta TestNothingIsRetiredBeforeTheDirectoryIsWritten",
	},
	{
		"clover/meta: the generation of a record is ignored", "clover/meta/recover.go",
		"case !ok || uint32(s.memory[p.Server].generation)&layout.MaxStamp != rec.Generation:",
		"case !ok || p.Server < 0:",
		"clover/meta TestRecordOfAnotherGenerationIsLost",
	},
	{
		"clover: a tombstone of a remembered chain proves that there is no key", "clover/get.go",
		"if header.IsTombstone() && !k.fresh {",
		"if false {",
		"sim clover",
	},
	{
		"clover: a shortcut of another epoch is followed", "clover/find.go",
		"return l, ok && stamp == k.epoch&layout.MaxStamp",
		"return l, ok && stamp <= layout.MaxStamp",
		"clover TestShortcutOfAnEarlierEpochIsNoEnd",
	},
	{
		"clover: an append without answer is made again at the new end", "clover/link.go",
		"\tif *uncertain {\n\t\tdone",
		"\tif false {\n\t\tdone",
		"clover TestNothingIsPostedAfterItsEpoch",
	},
	{
		"clover: a successor of the own node is no proof that it was appended", "clover/link.go",
		"return err == nil && (more || header.EntryVersion() != n.at.Version), err",
		"return err == nil && more && !more, err",
		"sim clover --steer any --mix late,hangs",
	},
	{
		"clover: locations outlive their epoch", "clover/call.go",
		"\t\tc.lease.epoch = a.Epoch\n\t\tc.cache.clear()",
		"\t\tc.lease.epoch = a.Epoch",
		"clover TestNothingIsRememberedOverAnEpoch",
	},
	{
		"clover: a location of an earlier epoch is posted", "clover/find.go",
		"\tif err == nil && epoch != c.lease.epoch {",
		"\tif false {",
		"clover TestNothingIsPostedAfterItsEpoch",
	},
	{
		"clover: requests are posted after the lease", "clover/client.go",
		"\tif c.rt.Now() >= c.lease.until {\n\t\treturn errLease\n\t}\n\tif c.shares() {",
		"\tif c.shares() {",
		"clover TestNothingIsWrittenAfterTheLease",
	},
	{
		"clover: connections have no owner", "clover/client.go",
		"claim := memservice.Claim{Owner: c.lease.owner, ",
		"claim := memservice.Claim{",
		"clover TestNothingIsPostedAfterItsEpoch",
	},
	{
		"clover: a location is remembered after its epoch", "clover/cache.go",
		"\tif k.epoch == c.lease.epoch {",
		"\tif k.epoch != 0 {",
		"clover TestNothingIsRememberedOverAnEpoch",
	},
	{
		"clover/meta: late copies of OpHello count", "clover/meta/handle.go",
		"\t\tif cl.introduces(id, r) && !rpc.After(r.Seq, cl.seq) {\n\t\t\treturn true",
		"\t\tif cl.introduces(id, r) && !rpc.After(r.Seq, cl.seq) {\n\t\t\treturn false",
		"clover TestLateHelloEndsNoClient",
	},
	{
		"clover/meta: late copies of OpOpen count", "clover/meta/handle.go",
		"return cl != nil && !rpc.After(r.Seq, cl.seq)",
		"return cl == nil && !rpc.After(r.Seq, r.Seq+2)",
		"clover TestLateOpenOpensNoKey",
	},
	{
		"clover/meta: the record of a failed open stays", "clover/meta/keys.go",
		"\t\ts.unopened = append(s.unopened, e)\n",
		"",
		"clover TestRecordOfAFailedInsertIsErased",
	},
}
