package requester

// Stats counts what a Conn did.
type Stats struct {
	Submitted    uint64 `name:"submitted" help:"requests accepted from clients"`
	NoRoom       uint64 `name:"no_room" help:"requests refused because ring and queue were full"`
	Sent         uint64 `name:"sent" help:"packets sent"`
	Resent       uint64 `name:"resent" help:"packets retransmitted"`
	Emptied      uint64 `name:"emptied" help:"WRITEs retransmitted without their bytes, of which the switch keeps no copy"`
	Timeouts     uint64 `name:"timeouts" help:"timeouts: the server did not answer in time"`
	SeqNaks      uint64 `name:"sequence_naks" help:"sequence NAKs of the server"`
	RNRs         uint64 `name:"rnr_naks" help:"RNR NAKs of the server"`
	Implied      uint64 `name:"implied_losses" help:"answers that skipped a READ or an atomic"`
	Refusals     uint64 `name:"refusals" help:"fatal NAKs of the server"`
	Lost         uint64 `name:"lost" help:"requests of which it is not known whether they were executed"`
	Ghosts       uint64 `name:"ghosts" help:"responses to no request in flight"`
	BadResponses uint64 `name:"bad_responses" help:"responses whose kind does not match the request"`
	FromServer   uint64 `name:"from_server" help:"requests that the server sent on the connection"`
	Failures     uint64 `name:"failures" help:"connections that failed"`
}
