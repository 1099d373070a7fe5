package hard

// Stats counts what a Machine did and refused.
type Stats struct {
	Moved             uint64 `name:"moved" help:"requests moved to a shared connection"`
	Replaced          uint64 `name:"replaced" help:"atomics sent as a WRITE of the new value"`
	ReplacedEmpty     uint64 `name:"replaced_empty" help:"atomics that change nothing, sent as a WRITE of no bytes"`
	Told              uint64 `name:"told" help:"CAS that fail, answered by the switch"`
	Rewritten         uint64 `name:"renumbered" help:"packets of own connections that got other numbers"`
	Held              uint64 `name:"held" help:"requests held until their place was free"`
	Released          uint64 `name:"released" help:"held requests sent on"`
	HeldFull          uint64 `name:"held_full" help:"requests dropped because there was no room to hold them"`
	HeldDropped       uint64 `name:"held_dropped" help:"held requests given up"`
	HoldTimeouts      uint64 `name:"hold_timeouts" help:"rows whose held requests were given up because they waited for too long"`
	Gaps              uint64 `name:"gaps" help:"requests refused because something before them was missing"`
	SequenceNaks      uint64 `name:"sequence_naks" help:"sequence NAKs sent to clients"`
	Duplicates        uint64 `name:"duplicates" help:"requests that came again"`
	DuplicatesIgnored uint64 `name:"duplicates_ignored" help:"requests that came again while the switch was busy with them"`
	AnsweredAgain     uint64 `name:"answered_again" help:"duplicates answered from what the switch remembers"`
	Redone            uint64 `name:"redone" help:"READs executed again"`
	TooOld            uint64 `name:"too_old" help:"duplicates of what is not remembered any more"`
	Forged            uint64 `name:"forged" help:"duplicates that are not what came under their PSN before"`
	Ghosts            uint64 `name:"ghosts" help:"responses to what was not asked"`
	Strangers         uint64 `name:"strangers" help:"packets to a queue pair of the switch from somebody else than its peer"`
	Bypassed          uint64 `name:"bypassed" help:"requests of untracked connections that had to wait for a word"`
	Unadmitted        uint64 `name:"unadmitted" help:"WRITEs to many words, of connections that nobody has ever answered"`
	RepeatsDropped    uint64 `name:"repeats_dropped" help:"requests that came again after a word had stopped to count on them, and had to wait for it"`
	LooseDropped      uint64 `name:"loose_dropped" help:"requests of connections not yet known that had to wait for a word"`
	TooEarly          uint64 `name:"too_early" help:"requests of new connections that had to wait for what a shared connection had long been waiting for"`
	Deaths            uint64 `name:"deaths" help:"connections that ended with a fatal NAK"`
	RefusedAgain      uint64 `name:"refused_again" help:"requests on connections that have ended"`
	TakenBack         uint64 `name:"taken_back" help:"moved requests given back to their clients because the server had refused one before them"`
	Orphans           uint64 `name:"orphans" help:"answers to requests of connections that are gone"`
	NotRecorded       uint64 `name:"not_recorded" help:"connections that stay where they are because nobody could take note of them"`
	Proofs            uint64 `name:"proofs" help:"connections that were shown to belong to the same life of the server as the switch's own"`
	LinkFailures      uint64 `name:"link_failures" help:"shared connections that failed"`
	CNPs              uint64 `name:"cnps" help:"congestion notifications passed on"`
}
