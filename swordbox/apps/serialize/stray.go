package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// strayer is a machine that must know what requests under its rules change that no row is for; they go on.
type strayer interface {
	Stray(r *rules.Rule, f *wire.Frame)
}

// stray shows such a request to the machine that steers: a client may touch a node on a connection for which there was no room.
func (p *Program) stray(q *pipeline.Parsed) {
	s, ok := p.cfg.Steer.(strayer)
	if !ok {
		return
	}
	if r := ruleFor(p.rules.Lookup(q.DstAddr()), &q.Frame); r != nil {
		s.Stray(r, &q.Frame)
	}
}
