package shared

// Stats counts what a Conn did.
type Stats struct {
	Submitted    uint64 `name:"submitted" help:"requests taken"`
	NoRoom       uint64 `name:"no_room" help:"requests not taken"`
	Sent         uint64 `name:"sent" help:"packets sent"`
	Resent       uint64 `name:"resent" help:"packets sent again"`
	Timeouts     uint64 `name:"timeouts" help:"times that the server was silent for too long"`
	SeqNaks      uint64 `name:"sequence_naks" help:"sequence NAKs of the server"`
	RNRs         uint64 `name:"rnr_naks" help:"RNR NAKs of the server"`
	Implied      uint64 `name:"implied_losses" help:"answers that skipped a READ or an atomic"`
	Refusals     uint64 `name:"refusals" help:"fatal NAKs of the server"`
	Lost         uint64 `name:"lost" help:"requests of which nobody knows whether they were executed"`
	Ghosts       uint64 `name:"ghosts" help:"responses to what was not asked, or was answered before"`
	BadResponses uint64 `name:"bad_responses" help:"responses of another kind than the request has"`
	FromServer   uint64 `name:"from_server" help:"requests of the server"`
	Failures     uint64 `name:"failures" help:"connections that failed"`
}

// Add adds the counters of another.
func (s *Stats) Add(o Stats) {
	for _, p := range []struct {
		to *uint64
		by uint64
	}{
		{&s.Submitted, o.Submitted},
		{&s.Refusals, o.Refusals},
		{&s.Lost, o.Lost},
		{&s.Sent, o.Sent},
		{&s.Resent, o.Resent},
		{&s.Timeouts, o.Timeouts},
		{&s.SeqNaks, o.SeqNaks},
		{&s.RNRs, o.RNRs},
		{&s.Implied, o.Implied},
		{&s.Ghosts, o.Ghosts},
		{&s.BadResponses, o.BadResponses},
		{&s.FromServer, o.FromServer},
		{&s.Failures, o.Failures},
		{&s.NoRoom, o.NoRoom},
	} {
		*p.to += p.by
	}
}
