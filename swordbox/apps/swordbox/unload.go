package swordbox

// Bound is how many flows the program cannot leave. Requests of a flow were moved, so that the PSNs
// of its two ends differ until it ends, or the flow is of a former incarnation of the switch and
// its client has not received the fatal NAK yet. Flows whose requests are steered only do not
// count: to their clients it is as if the switch had crashed, which they bear.
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

// Unloaded is called when another program has taken the place of this one, for which Bound was 0.
// Flows are recorded before their first move, and some never move or have failed since: a program
// that is loaded later with this record must not take them for moved and end them.
func (p *Program) Unloaded() {
	o := p.cfg.Own
	if o == nil {
		return
	}
	for _, s := range o.slots {
		o.record.EndFlow(s.slot)
	}
	o.slots = nil
}
