package swordbox

// Bound returns how many flows would break if the program were replaced now. These are the flows
// with moved requests, because the PSNs of their two ends differ until they end. They also include
// the stale flows, whose clients have not received the fatal NAK yet. Flows whose requests are only
// steered do not count: their clients recover as from a crash of the switch.
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

// Unloaded is called when another program has replaced this one, whose Bound was 0. It removes all
// flows from the journal. The journal may still have flows, because a flow is entered before its
// first request is moved: no request of such a flow was moved, or the flow has failed since. A
// program that is loaded later would take these flows for stale ones and end them.
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
