package main

// pdpmBugs are bugs of pDPM-Direct, and of what store/passive does for its locks.
var pdpmBugs = []planted{
	{
		"store/passive: a lock is taken over without a fence", "store/passive/conn.go",
		"err := memservice.Fence(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[server], owner, deadline)",
		"var err error",
		"sim pdpm-direct",
	},
	{
		"store/passive: a new connection is used though the lock was taken over", "store/passive/conn.go",
		"err == nil && h.word != 0 && h.server == server {",
		"err == nil && h.word == 0 && h.server == server && h.at == 1 {",
		"store/pdpm TestFenceIsForgotten",
	},
	{
		"pdpm: a key counts as lost because another server is", "store/pdpm/direct.go",
		"if errors.Is(err, kv.ErrLost) && c.HolderOf(key) != 0 {",
		"if err == nil {",
		"sim pdpm-direct",
	},
	{
		"pdpm: a torn copy is not noticed", "store/pdpm/layout.go",
		"return value, sum(key, b, value) == binary.LittleEndian.Uint32(b[12:])",
		"return value, true",
		"sim pdpm-direct",
	},
	{
		"pdpm: a takeover does not restore the entry", "store/pdpm/lock.go",
		"	copy(place, redo)\n	return c.Conn.Write(e.server, e.at+lockLen, place, deadline)",
		"	return nil",
		"store/pdpm TestDeadHolder",
	},
	{
		"pdpm: a takeover writes a redo copy in place that is torn", "store/pdpm/lock.go",
		"case !ready || whole && tagOf(place) == tagOf(redo):",
		"case whole && tagOf(place) == tagOf(redo):",
		"store/pdpm TestDeadHolder",
	},
	{
		"pdpm: the copy in place is written first", "store/pdpm/direct.go",
		"err = c.Conn.Write(e.server, e.at+lockLen+uint64(c.shape.copyLen()), c.made, deadline)\n		if err == nil {\n			err = c.Conn.Write(e.server, e.at+lockLen, c.made, deadline)",
		"err = c.Conn.Write(e.server, e.at+lockLen, c.made, deadline)\n		if err == nil {\n			err = c.Conn.Write(e.server, e.at+lockLen+uint64(c.shape.copyLen()), c.made, deadline)",
		"sim pdpm-direct",
	},
	{
		"pdpm: a PUT takes a lock that another client has", "store/pdpm/lock.go",
		"case found == 0 || found == own:",
		"case found == 0 || found == own || sent > 1:",
		"sim pdpm-direct",
	},
	{
		"pdpm: a change that others may complete says that it did not happen", "store/pdpm/direct.go",
		"return errors.Join(kv.ErrTimeout, errors.New(\"another client took the lock over\"))",
		"return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)",
		"sim pdpm-direct",
	},
	{
		"pdpm: a lock of a dead client is never taken over", "store/pdpm/lock.go",
		"return w.Seen(t, asked, now) > lease && t != 0",
		"return false",
		"store/pdpm TestDeadHolder",
	},
	{
		"pdpm: a host that was stopped takes over the lock of a live client", "store/pdpm/lock.go",
		"return w.Seen(t, asked, now) > lease && t != 0",
		"return w.Seen(t, max(asked, now), now) > lease && t != 0",
		"store/pdpm TestAStoppedHostEndsNoLease",
	},
}
