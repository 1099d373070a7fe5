package swordbox

// Bound counts the flows that would break if the program were replaced now: flows with moved
// requests, because the PSNs of their two ends differ until they end, and flows of a former
// incarnation of the switch whose clients have not received the fatal NAK yet. Flows whose requests
// are only steered do not count: their clients recover as from a crash of the switch.
func (p *Program) Bound() (n int) {
	for id := range uint32(p.track.MaxFlows()) {
		if r := p.track.Flow(id); r != nil && r.Pinned {
			n++
		}
	}
	if o := p.cfg.Own; o != nil {
		n += len(o.former.Flows())
	}
	return n
}

// Unloaded is called when another program has replaced this one, which had Bound 0. It removes all
// flows from the journal. A flow is entered before its first request is moved, so the journal may
// have flows of which no request was moved, or which have failed since. A program that is loaded
// later would take them for stale flows and end them.
func (p *Program) Unloaded() {
	o := p.cfg.Own
	if o == nil {
		return
	}
	for _, s := range o.slots {
		o.journal.EndFlow(s.slot)
	}
	o.slots = nil
}
