package insim

import (
	"cmp"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Maximum rates that the authors of RedN measured with ConnectX-5 (table 3), in operations a
// second: rednReads of READs, rednWrites of WRITEs and, in the model, of SENDs.
const (
	rednReads  cost.Rate = 65_000_000
	rednWrites cost.Rate = 63_000_000
)

// shortPatience replaces storePatience in loads whose Undo contains experiment.ShortPatience.
const shortPatience = 10 * time.Millisecond

// choose returns the cost model of a load. It replaces the choices in the load's Undo by their
// alternatives: in the cost model, and in the load's number of keys and skew.
func (p *Sim) choose(l *experiment.Clover) *cost.Model {
	m := *p.model(&l.Switch)
	if l.Undo&experiment.OldTotals != 0 {
		m.NIC.Read.Total, m.NIC.Write.Total, m.NIC.Send.Total = rednReads, rednWrites, rednWrites
	}
	if l.Undo&experiment.NoProgram != 0 {
		m.Client.Get, m.Client.Put = 0, 0
	}
	if l.Undo&experiment.OtherKeys != 0 {
		l.Keys, l.Zipf = 1024, 0.99
	}
	return &m
}

// patience returns how long a client of a load waits for an operation before it gives up.
func patience(l *experiment.Clover) time.Duration {
	if l.Undo&experiment.ShortPatience != 0 {
		return shortPatience
	}
	return storePatience
}

// pace returns the function by which the metadata server spends virtual time on its requests. The
// function is called with a number of completions, of which a request has two: of its receive and
// of its answer.
func (r *cloverRun) pace(rt verbs.Runtime) func(completions int) {
	m := r.model.Metadata
	if r.load.Undo&experiment.OneThread != 0 {
		m.Threads = 1
	}
	m.Threads = cmp.Or(r.load.Start.Threads, m.Threads)
	return func(completions int) { rt.Sleep(time.Duration(completions) * m.Each() / 2) }
}
