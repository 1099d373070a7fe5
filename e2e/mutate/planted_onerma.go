package main

// onermaBugs are bugs of the NIC without connections. The scenario must notice them from outside.
var onermaBugs = []planted{
	{
		"onerma: the target takes data after its time-out", "onerma/nic/target.go",
		"n.timers.Set(uint32(len(n.slots))+uint32(i), now.Add(n.cfg.Timeout))",
		"n.timers.Set(uint32(len(n.slots))+uint32(i), now.Add(3*n.cfg.Timeout))",
		"sim onerma",
	},
	{
		"onerma: the initiator's timer goes on when it is pulled", "onerma/nic/initiator.go",
		"n.timers.Set(uint32(f.Slot), now.Add(limit+limit/32))",
		"_, _ = now, limit",
		"sim onerma",
	},
	{
		"onerma: a copy of a pull gives more time", "onerma/nic/initiator.go",
		"	if _, ok := n.egress.sealer.open(f, s.cmd.Key, &s.request); !ok {",
		"	n.timers.Set(uint32(f.Slot), n.last.Add(2*n.cfg.Timeout))\n	if _, ok := n.egress.sealer.open(f, s.cmd.Key, &s.request); !ok {",
		"sim onerma: has not ended",
	},
	{
		"onerma: every pull is served", "onerma/nic/initiator.go",
		"if s == nil || s.state != offered && (s.state != serving || s.ticket != f.Ticket) {",
		"if s != nil && s.state == serving && s.ticket != f.Ticket {\n		if _, ok := n.egress.sealer.open(f, s.cmd.Key, &s.request); ok && !n.server.full() {\n			s.ticket, s.prev = f.Ticket, n.egress.sealer.iv\n			n.serveWrite(f.Slot)\n		}\n		return\n	}\n	if s == nil {",
		"onerma/nic TestOnePullIsServed",
	},
	{
		"onerma: the window admits what fits", "onerma/nic/window.go",
		"return w.size-w.used >= onerma.MaxOp && w.fifos[0].n+w.fifos[1].n > 0",
		"return w.size-w.used >= 1024 && w.fifos[0].n+w.fifos[1].n > 0",
		"sim onerma: 4096 must be free",
	},
	{
		"onerma: bytes are refunded twice", "onerma/nic/target.go",
		"		n.window.refund(int(t.head.Length))",
		"		n.window.refund(min(n.window.used, 2*int(t.head.Length)))",
		"sim onerma: 4096 must be free",
	},
	{
		"onerma: copies of data count", "onerma/nic/slot.go",
		"return p == maskOf(0, length)",
		"return p&(1<<((length-1)/onerma.Unit)) != 0",
		"sim onerma",
	},
	{
		"onerma: data of a former command land", "onerma/nic/initiator.go",
		"if s.generation != f.Generation || s.to.addr",
		"if s.to.addr",
		"onerma/nic TestForgedRefusals",
	},
	{
		"onerma: messages are not chained", "onerma/nic/crypto.go",
		"	copy(s.aad[onerma.HeaderLen:], prev[:])\n	s.iv.set",
		"	_ = prev\n	s.iv.set",
		"onerma/nic TestReadAndWrite",
	},
	{
		"onerma: a key is not bound to a process", "onerma/nic/crypto.go",
		"	binary.BigEndian.PutUint32(in[4:], uint32(pid))",
		"	_ = pid",
		"sim onerma: wrong key",
	},
	{
		"onerma: a key is not bound to an operation", "onerma/nic/crypto.go",
		"	in[8] = byte(op)",
		"	_ = op",
		"sim onerma: wrong key",
	},
	{
		"onerma: a key is not bound to an address", "onerma/nic/crypto.go",
		"	copy(in[:], from[:])",
		"	_ = from",
		"sim onerma: wrong key",
	},
	{
		"onerma: a NACK needs no key", "onerma/nic/initiator.go",
		"	if f.Kind == onerma.AuthFail {\n		status = RemoteAuthenticationFailure\n		if s.state != serving {",
		"	if true {\n		status = RemoteAuthenticationFailure\n		if s.state != serving {",
		"onerma/nic TestForgedRefusals",
	},
	{
		"onerma: a restart uses counters again", "onerma/nic/crypto.go",
		"return s.epoch<<countBits | s.count, true",
		"return s.count, true",
		"sim onerma: repeats",
	},
	{
		"onerma: a REKEY leaves WRITEs under the former key", "onerma/nic/target.go",
		"	if rekey {\n		n.revoke(r, out)\n	}",
		"	_, _ = rekey, r",
		"onerma/nic TestRekey",
	},
	{
		"onerma: a READ goes on under the former key", "onerma/nic/serve.go",
		"if !x.source.gone && x.source.version == x.version {",
		"if !x.source.gone {",
		"onerma/nic TestReadsEndAtARekey",
	},
	{
		"onerma: a command waits for the window without end", "onerma/nic/window.go",
		"if f := &w.fifos[i]; f.n > 0 && f.front().deadline <= now {",
		"if f := &w.fifos[i]; f.n > 0 && f.front().ticket && f.front().deadline <= now {",
		"sim onerma",
	},
	{
		"onerma: what is not authentic is written", "onerma/nic/target.go",
		"	case !ok:\n		n.stats.Forged++\n		return\n	case t.landed&mask != 0:",
		"	case !ok && len(body) > 0:\n		return\n	case t.landed&mask != 0:",
		"sim onerma",
	},
	{
		"onerma: a transfer ends while operations are in flight", "onerma/executor/executor.go",
		"	if t.flying > 0 || t.more() {",
		"	if t.more() {",
		"sim onerma",
	},
	{
		"onerma: a transfer goes on after its deadline", "onerma/executor/executor.go",
		"			t.failed = true\n			if t.status == nic.OK {",
		"			if t.status == nic.OK {",
		"sim onerma: after its deadline",
	},
	{
		"onerma: what has failed is not tried again", "onerma/executor/executor.go",
		"		t.again = append(t.again, x.chunk)\n		t.status = c.Status",
		"		t.status = c.Status",
		"onerma/executor TestTransfers",
	},
	{
		"onerma: windows do not become smaller", "onerma/executor/window.go",
		"max(w.cwnd*factor, c.Least)",
		"max(w.cwnd, factor, c.Least)",
		"onerma/executor TestWindow",
	},
	{
		"onerma: a large transfer has every turn", "onerma/executor/executor.go",
		"	f.queue = append(append(f.queue[:turn], f.queue[turn+1:]...), t) // the transfers that had no turn come first next time",
		"	_ = turn",
		"onerma/executor TestSmallBesideLarge",
	},
}
