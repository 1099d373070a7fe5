package main

// templateBugs are bugs of the template of a store, and of store/passive below it. All but one are
// noticed by the run that every store gets: store.Trial.
var templateBugs = []planted{
	{
		"store/passive: an old connection is not ended", "store/passive/conn.go",
		", Replaces: c.mems[server].Conn}",
		"}",
		"store/passive TestFormerConnectionEnds",
	},
	{
		"store/passive: other memory is not noticed", "store/passive/conn.go",
		"|| c.check == nil {",
		"|| c.check != nil {",
		"sim template",
	},
	{
		"template: a reader takes an object that is reused", "store/passive/seal.go",
		"if le.Uint64(b[8*i:]) != w {",
		"if i > 0 && le.Uint64(b[8*i:]) != w {",
		"sim template",
	},
	{
		"store/passive: a torn value is not noticed", "store/passive/seal.go",
		" || checksum(b[:end], n) != le.Uint32(b[n-4:])",
		"",
		"sim template",
	},
	{
		"store/passive: a CAS that was repeated is taken for lost", "store/passive/change.go",
		"case found == old, sent > 1 && found == young:",
		"case found == old:",
		"sim template",
	},
	{
		"template: an object is reused though the CAS is open", "store/template/ops.go",
		"\t*spare = 0 // until the outcome is known\n",
		"",
		"sim template",
	},
	{
		"store/passive: a change whose outcome is not known says that it failed", "store/passive/change.go",
		"return false, ErrOpen",
		"return false, nil",
		"sim template",
	},
	{
		"template: a change does not increment the version", "store/template/layout.go",
		"word(w.version()+1)<<25",
		"word(w.version()|1)<<25",
		"sim template",
	},
	{
		"store/passive: a slot that another key has claimed is used", "store/passive/keys.go",
		"				if owner == 0 {\n					owner = key + 1\n				}",
		"				owner = key + 1",
		"sim template",
	},
	{
		"template: two clients delete a key with the same word", "store/template/ops.go",
		"\t\tnext |= deleted",
		"\t\tnext = s.word.next(s.word.object()) | deleted",
		"sim template",
	},
	{
		"store: a start makes a store over the data of another one", "store/passive.go",
		"if err := passive.Blank(cfg, deadline); err != nil {",
		"if err := passive.Blank(cfg, deadline); err != nil && in.Fresh {",
		"store TestStartMakesNoStoreOverOtherData",
	},
}
