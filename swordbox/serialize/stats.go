package serialize

// Stats counts what a Machine did and refused.
type Stats struct {
	Moved             uint64 `name:"moved" help:"requests moved to a shared connection"`
	Replaced          uint64 `name:"replaced" help:"atomics sent as a WRITE of the new value"`
	ReplacedEmpty     uint64 `name:"replaced_empty" help:"atomics that change nothing, sent as a WRITE of no bytes"`
	Told              uint64 `name:"told" help:"CAS that fail, answered by the switch"`
	Rewritten         uint64 `name:"renumbered" help:"packets on clients' connections that got another PSN or MSN"`
	Held              uint64 `name:"held" help:"requests held until their place was free"`
	Released          uint64 `name:"released" help:"held requests sent on"`
	HeldFull          uint64 `name:"held_full" help:"requests dropped because there was no room to hold them"`
	HeldDropped       uint64 `name:"held_dropped" help:"held requests dropped"`
	HoldTimeouts      uint64 `name:"hold_timeouts" help:"flows whose held requests were dropped because they waited for too long"`
	Gaps              uint64 `name:"gaps" help:"requests dropped because a request before them was missing"`
	SequenceNaks      uint64 `name:"sequence_naks" help:"sequence NAKs sent to clients"`
	Duplicates        uint64 `name:"duplicates" help:"duplicate requests"`
	DuplicatesIgnored uint64 `name:"duplicates_ignored" help:"duplicates of requests that the switch still holds or has in flight"`
	AnsweredAgain     uint64 `name:"answered_again" help:"duplicates answered by the switch from its records"`
	Redone            uint64 `name:"redone" help:"READs executed again"`
	TooOld            uint64 `name:"too_old" help:"duplicates of requests that have no record any more"`
	Forged            uint64 `name:"forged" help:"duplicates that differ from the first request with their PSN"`
	Ghosts            uint64 `name:"ghosts" help:"responses to no request in flight"`
	Strangers         uint64 `name:"strangers" help:"packets to a queue pair of the switch that were not sent by its peer"`
	Bypassed          uint64 `name:"bypassed" help:"requests of untracked connections that had to wait for a word"`
	Unadmitted        uint64 `name:"unadmitted" help:"dropped WRITEs to many words, on connections that the server has never answered"`
	RepeatsDropped    uint64 `name:"repeats_dropped" help:"duplicates dropped until their words were free, because the words did not wait for them any more"`
	LooseDropped      uint64 `name:"loose_dropped" help:"requests of connections not yet synchronised that had to wait for a word"`
	TooEarly          uint64 `name:"too_early" help:"requests of new connections that had to wait for older requests on a shared connection"`
	Deaths            uint64 `name:"deaths" help:"connections that ended with a fatal NAK"`
	RefusedAgain      uint64 `name:"refused_again" help:"requests on connections that had ended with a fatal NAK"`
	TakenBack         uint64 `name:"taken_back" help:"moved requests that clients had to send again because the server had refused one before them"`
	Orphans           uint64 `name:"orphans" help:"answers to requests of connections that had ended"`
	NotRecorded       uint64 `name:"not_recorded" help:"connections whose requests do not move because the journal had no room for them"`
	Proofs            uint64 `name:"proofs" help:"proofs that a client's connection belongs to the same incarnation of the server as the shared ones"`
	LinkFailures      uint64 `name:"link_failures" help:"shared connections that failed"`
	CNPs              uint64 `name:"cnps" help:"congestion notifications passed on"`
}
