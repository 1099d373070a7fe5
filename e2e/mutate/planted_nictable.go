package main

// nictableBugs are bugs of the store whose GETs a NIC executes.
var nictableBugs = []planted{
	{
		"nictable: clients that have crashed keep their connections", "store/rpc/server.go",
		"if oldest != nil && s.rt.Now() >=",
		"if oldest != nil && s.rt.Now() <",
		"store/rpc TestCrashedClientsTakeNoConnection",
	},
	{
		"nictable: a move is not counted", "store/nictable/table.go",
		"	t.moves++\n",
		"",
		"sim nictable",
	},
	{
		"nictable: a client takes an item of any version", "store/nictable/layout.go",
		"if len(b) < itemHead || binary.LittleEndian.Uint32(b[8:]) != version {",
		"if len(b) < itemHead {",
		"sim nictable",
	},
	{
		"nictable: a process forgets the versions of the former one", "store/nictable/table.go",
		"		t.version = max(t.version, binary.LittleEndian.Uint32(t.line[8:]))\n",
		"",
		"store/nictable TestVersions",
	},
	{
		"nictable: a process takes used items for free", "store/nictable/table.go",
		"		used[i], t.slots[n] = true, s\n",
		"		t.slots[n] = s\n",
		"store/nictable TestProcessEnds",
	},
	{
		"nictable: the receive of a program is used once", "store/nictable/estate.go",
		"Receives: 1, Table: table,",
		"Table: table,",
		"store/nictable TestConformance",
	},
	{
		"nictable: programs of clients that have gone stay", "store/nictable/estate.go",
		"	if !e.makeRoom() {",
		"	if false && !e.makeRoom() {",
		"store/nictable TestProgramsOfClientsThatHaveGone",
	},
}
