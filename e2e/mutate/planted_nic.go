package main

// nicBugs are bugs of completion queues and of the transport.
var nicBugs = []planted{
	{
		"completion queue: a purge leaves the ring", "softrnic/cq/source.go",
		"	s.c.ring.purge(s)\n",
		"",
		"softrnic/cq TestAgreesWithModel",
	},
	{
		"completion queue: new completions pass those in chains", "softrnic/cq/source.go",
		"	case c.ring.n < len(c.ring.all) && len(c.chains) == 0:",
		"	case c.ring.n < len(c.ring.all):",
		"softrnic/cq TestAgreesWithModel",
	},
	{
		"completion queue: the ring has room for all completions", "softrnic/cq/ring.go",
		"const maxRing = 1 << 10",
		"const maxRing = 1 << 22",
		"softrnic/engine TestEndBesideMany",
	},
	{
		"completion queue: its memory is allocated while the NIC is held", "softrnic/verbsengine/context.go",
		"	q, err := e.AddCQ(ring)",
		"	q, err := e.CreateCQ(ring.Cap())",
		"softrnic/verbsengine TestNICIsNotHeldForTheMemoryOfQueues",
	},
	{
		"transport: a request that is 64 packets old is executed again", "softrnic/transport/responder.go",
		"	case d < 0:\n		r.saw(p.BTH.Opcode, \"behind\")",
		"	case d < 0 && d > -64:\n		r.saw(p.BTH.Opcode, \"behind\")",
		"softrnic/transport TestRandomTrafficWithOldPackets",
	},
	{
		"transport: an older result answers a duplicate", "softrnic/transport/duplicate.go",
		"		at := s.newest - i\n",
		"		at := s.newest - len(s.all) + 1 + i\n",
		"softrnic/transport TestResults",
	},
	{
		"transport: a flush takes receives as long as a program adds some", "softrnic/transport/receiver.go",
		"	for ; n > 0 && (r.rq.len() > 0 || r.fetch()); n-- {",
		"	for n > 0 && (r.rq.len() > 0 || r.fetch()) {",
		"softrnic/transport TestFlushOfARingThatGrows",
	},
	{
		"device: answers to a super-frame wait for its end", "softrnic/device/second.go",
		"		if many(&d.out) {\n			d.flush()\n			now",
		"		if len(d.out.Frames) < 0 {\n			d.flush()\n			now",
		"softrnic/device TestAnswersToASuperFrame",
	},
	{
		"engine: a refused send completes before those in flight", "softrnic/engine/qp.go",
		"	if q.ToError(now, out) != nil {\n		return // the queue pair is destroyed\n	}\n	q.e.counters.CqeErr++\n",
		"	defer q.ToError(now, out)\n	q.e.counters.CqeErr++\n",
		"softrnic/uverbs TestRefusedSends",
	},
	{
		"serve: entries behind a refused one stay in the ring", "softrnic/ipc/serve/program_rings.go",
		"			waiting--\n			most = 1",
		"			waiting, most = 0, 1",
		"softrnic/uverbs TestRefusedSends",
	},
	{
		"serve: events of an object wait although it has ended", "softrnic/ipc/serve/program_events.go",
		"	before := len(q.pending)\n	q.pending = slices.DeleteFunc(",
		"	before := len(q.pending)\n	_ = slices.DeleteFunc(",
		"softrnic/uverbs TestEventsThatWaitAtTheEnd",
	},
	{
		"serve: a lost event of a completion queue counts", "softrnic/ipc/serve/program_rings.go",
		"	if q.Fired() && c.channel != nil && c.channel.send(binary.NativeEndian.AppendUint64(nil, c.user)) {\n		c.told++\n",
		"	if q.Fired() && c.channel != nil {\n		c.channel.send(binary.NativeEndian.AppendUint64(nil, c.user))\n		c.told++\n",
		"softrnic/uverbs TestEventsThatWaitAtTheEnd",
	},
	{
		"serve: a request whose acceptance has refused the peer still counts", "softrnic/ipc/serve/connect.go",
		"x.deadline(a.Timeout))\n	if !errors.Is(err, rdmacm.ErrUnanswered) {\n",
		"x.deadline(a.Timeout))\n	if !errors.Is(err, verbs.ErrInvalid) {\n",
		"softrnic/ipc TestAcceptanceThatRefuses",
	},
	{
		"serve: the memory of a program that was not attached is closed twice", "softrnic/ipc/serve/program.go",
		"	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)\n",
		"	c.prog = p\n	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)\n",
		"softrnic/ipc/serve TestAttachWithFewDescriptors",
	},
	{
		"serve: a process owns the queue pairs of another one with its process ID", "softrnic/ipc/serve/program_share.go",
		"processKey{c.cred.Pid, c.cred.Uid, c.token}",
		"processKey{pid: c.cred.Pid, user: c.cred.Uid}",
		"softrnic/uverbs TestQueuePairOfAnotherProcess",
	},
	{
		"serve: a share ends below the region of another device", "softrnic/ipc/serve/program_share.go",
		"!mine && !s.unused() || ",
		"!mine && s.regions[p.c] > 0 || ",
		"softrnic/uverbs TestSharesOfSeveralRegions",
	},
	{
		"serve: a share ends below memory that the NIC accesses by system calls", "softrnic/ipc/serve/program_share.go",
		" || p.overlapped(file, a.Closing != 0) {",
		" || p.overlapped(file, true) && a.Closing > 1 {",
		"softrnic/uverbs TestSharesBelowOtherMemory",
	},
	{
		"serve: pages that the NIC accesses by system calls are shared", "softrnic/ipc/serve/program_share.go",
		"			if r.from < x.to && x.from < r.to {",
		"			if r.from > x.to && x.from < r.to {",
		"softrnic/uverbs TestWhatIsNotShared",
	},
	{
		"serve: a private copy of a share is accessed as shared", "softrnic/ipc/serve/program_share.go",
		"s == nil || x.rights[3] != 's' || ",
		"s == nil || ",
		"softrnic/uverbs TestStrangeMappingsOfShares",
	},
	{
		"serve: a share with the offset of another mapping", "softrnic/ipc/serve/program_share.go",
		"s.bytes[x.offset : x.offset+x.to-x.from]",
		"s.bytes[:x.to-x.from]",
		"softrnic/uverbs TestStrangeMappingsOfShares",
	},
	{
		"serve: a client that ends unmaps the shares of other clients", "softrnic/ipc/serve/program_share.go",
		"delete(s.regions, c); len(s.regions) == 0 {",
		"delete(s.regions, c); len(s.regions) < 2 {",
		"softrnic/uverbs TestSharesOfSeveralRegions",
	},
	{
		"polling: the time of other processes counts", "softrnic/pollpace/pollpace.go",
		"	s.spent += min(took, emptyPause)",
		"	s.spent += took",
		"softrnic/pollpace TestSpent",
	},
	{
		"batch: bytes in a former arena do not count", "softrnic/packetio/packetio.go",
		"func (b *Batch) Bytes() int { return b.bytes }",
		"func (b *Batch) Bytes() int { return len(b.arena) }",
		"softrnic/packetio TestBytesOfABatch",
	},
}
