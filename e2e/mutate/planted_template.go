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
		"template: a reader takes an object that is reused", "store/template/layout.go",
		"le.Uint64(b) != uint64(w) || ",
		"",
		"sim template",
	},
	{
		"template: a torn object is not noticed", "store/template/layout.go",
		" || sum(b[:headLen+n]) != le.Uint32(b[20:])",
		"",
		"sim template",
	},
	{
		"template: a CAS that was repeated is taken for lost", "store/template/ops.go",
		"case found == s.word || found == next && sent > 1:",
		"case found == s.word:",
		"sim template",
	},
	{
		"template: an object is reused though the CAS is open", "store/template/ops.go",
		"\t*spare = 0 // until the outcome is known\n",
		"",
		"sim template",
	},
	{
		"template: an INSERT whose outcome is not known says that it failed", "store/template/ops.go",
		"return false, errUnknown",
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
		"template: a slot that another key has claimed is used", "store/template/ops.go",
		"err != nil || owner == 0 {",
		"err != nil || owner != key+1 {",
		"sim template",
	},
	{
		"template: two clients delete a key with the same word", "store/template/ops.go",
		"next := s.word.next(object) | mark",
		"next := s.word.next(object) | mark\n\tif mark != 0 {\n\t\tnext = s.word.next(s.word.object()) | mark\n\t}",
		"sim template",
	},
}
