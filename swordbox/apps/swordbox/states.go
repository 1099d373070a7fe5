package swordbox

import "github.com/rdmalab/rdmalab/swordbox/handler"

// States calls visit for the state of each entry of the state tables: the flows, the switch's
// connections, and the entries of handlers that implement handler.Stater. It does not allocate.
func (p *Program) States(visit func(table string, entry uint32, state string)) {
	p.track.States(visit)
	if o := p.cfg.Own; o != nil {
		o.dialer.States(visit)
	}
	for _, h := range p.parts.all {
		if s, ok := h.(handler.Stater); ok {
			s.States(visit)
		}
	}
}
