package serialize

// Bound is how many rows the program cannot leave: requests of them were moved, so that the numbers of their two ends differ for as
// long as they live, or they are of a former life of the switch and have yet to be told that they are over. Rows whose
// requests are steered only are none: to them it is as if the switch had crashed, which their clients bear.
func (p *Program) Bound() (n int) {
	for id := range uint32(p.track.MaxRows()) {
		if r := p.track.Row(id); r != nil && r.Pinned {
			n++
		}
	}
	if o := p.cfg.Own; o != nil {
		n += len(o.former.Rows())
	}
	return n
}

// Unloaded is called when another program has taken the place of one that nothing is Bound to. Rows are recorded before they move, and
// some never do, or have failed since: a program that comes back to this record must not take them for moved, and end them.
func (p *Program) Unloaded() {
	o := p.cfg.Own
	if o == nil {
		return
	}
	for _, s := range o.slots {
		o.record.EndRow(s.slot)
	}
	o.slots = nil
}
