package scenario

// unscripted is a hole without a script, and the reason.
type unscripted struct {
	number int
	title  string
	// proof is true if the reason shows that the published rules do no damage of their own by the
	// hole. If it is false, damage is possible or is shown by a test below the scenarios, and a
	// script is missing.
	proof bool
	why   string
}

// unscriptedHoles lists the holes that have no script, by number.
var unscriptedHoles = []unscripted{
	{22, "one protection domain for all", false, "both modes leave it open; the clients of the scripts share a domain; simrack.TestKeyOfAnotherProtectionDomain has two"},
	{25, "a data WRITE or an append that comes again", true, "a request with a PSN that was seen changes no table, in both modes: the switch looks at the PSN before it looks at a node or a tail"},
	{27, "the tail is in other memory", false, "the published tail is an address alone; the rack of the scripts has one memory server and one region, so the tail is never elsewhere"},
	{34, "the garbage collection believes clients", true, "no switch takes part: the metadata server frees nodes by the order of reports; clover/meta.TestOrderOfReports"},
	{35, "a data WRITE without an append", true, "only an append moves a tail, in both modes: a data WRITE changes the last node of its connection and the key of its address, which is hole 33"},
	{37, "values of more than one packet", false, "the published switch steers the first request of a long READ, and not a part that is asked for again; the nodes of the scripts have one packet"},
	{39, "masked atomics, ATOMIC_WRITE and FLUSH", false, "the published switch does not see them; published/serialize.TestMaskedAtomicIsUnseen shows the damage; the clients of the scripts do not send them"},
	{44, "pipelines deeper than the paper thinks of", true, "it is holes 41 to 43 at once, whose scripts show the damage"},
}

// note writes the reason to the report.
func (u *unscripted) note(e *env) {
	kind := "a script is missing"
	if u.proof {
		kind = "no damage of its own"
	}
	e.note("hole %d, %s, no script, %s: %s", u.number, u.title, kind, u.why)
}
