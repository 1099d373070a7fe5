package main

// centralBugs are bugs of pDPM-Central.
var centralBugs = []planted{
	{
		"pdpm-central: a GET does not compare the version", "store/pdpm/handler.go",
		"whole && uint64(tagOf(h.buf)) == p.version {",
		"whole {",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a key is released while a WRITE of it may still arrive", "store/pdpm/handler.go",
		"	if out != doubtful { // after doubtful, settle releases the key",
		"	if true {",
		"store/pdpm TestCentralLateWrite",
	},
	{
		"pdpm-central: a former coordinator is not fenced", "store/pdpm/coordinator.go",
		"found, _, err = conn.TakeOver(server, atServing, was, uint64(number), uint32(was), deadline)",
		"found, _, err = conn.Swap(server, atServing, was, uint64(number), deadline)",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a coordinator says without a look that a key does not exist", "store/pdpm/handler.go",
		"	server, _ := passive.PlaceOf(key, h.conn.Servers())\n	var b [8]byte\n",
		"	server, _ := passive.PlaceOf(key, h.conn.Servers())\n	var b [8]byte\n	if s == notFound {\n		return s\n	}\n",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a change overwrites the copy that counts", "store/pdpm/handler.go",
		"version, other := p.used+1, 1-p.now",
		"version, other := p.used+1, p.now",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a new coordinator takes the older copy", "store/pdpm/coordinator.go",
		"		if version > p.version {",
		"		if version > 0 && (p.version == 0 || version < p.version) {",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a change is sent again though it may have been made", "store/pdpm/central.go",
		"case err != nil && posted && q.op.changes():",
		"case err != nil && posted && q.op.changes() && c.ended:",
		"sim pdpm-central",
	},
	{
		"pdpm-central: two requests change a key at once", "store/pdpm/index.go",
		"	if p == nil || !p.busy {",
		"	if true {",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a version is used twice", "store/pdpm/handler.go",
		"x.change(func() { p.claimed, p.used = true, version })",
		"x.change(func() { p.claimed = true })",
		"sim pdpm-central",
	},
	{
		"pdpm-central: a deposed coordinator connects again to a memory server that has forgotten the fence", "store/pdpm/coordinator.go",
		"	if number != uint64(c.number) {",
		"	if number == 0 {",
		"store/pdpm TestCoordinatorFenceIsForgotten",
	},
	{
		"pdpm-central: the index names a copy before the memory server has it", "store/pdpm/handler.go",
		"	h.made = putCopy(",
		"	x.change(func() { p.now, p.version, p.alive = other, version, q.op != opDelete })\n	h.made = putCopy(",
		"sim pdpm-central",
	},
}
