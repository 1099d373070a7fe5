package scenario

// unscripted is a hole without a script. The reason why shows that the published rules do no damage of
// their own by it.
type unscripted struct {
	number int
	title  string
	why    string
}

// unscriptedHoles lists the holes that have no script, by number.
var unscriptedHoles = []unscripted{
	{25, "a data WRITE or an append that comes again", "a request with a PSN that was seen changes no table, in both modes: the switch looks at the PSN before it looks at a node or a tail"},
	{34, "the garbage collection believes clients", "no switch takes part: the metadata server frees nodes by the order of reports; clover/meta.TestOrderOfReports"},
	{35, "a data WRITE without an append", "only an append moves a tail, in both modes: a data WRITE changes the last node of its connection and the key of its address, which is hole 33"},
	{44, "pipelines deeper than the paper thinks of", "it is holes 41 to 43 at once, whose scripts show the damage"},
}

// note writes the reason to the report.
func (u *unscripted) note(e *env) {
	e.note("hole %d, %s, no script, no damage of its own: %s", u.number, u.title, u.why)
}
