package chains

import (
	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// rateWrites is how many WRITEs a ring executes to measure a rate. All are in the ring before it is
// started, so that no processor limits the rate.
const rateWrites = 1024

// ring connects a send ring to the server, fills it with WRITEs, and measures how many of them the NIC
// executes in a second, while the rings of the other clients are executed.
func (r *Run) ring(m Machine) error {
	pd, err := m.Context.AllocPD()
	if err != nil {
		return err
	}
	p, err := newProgram(m, pd, poolLen+rateWrites*sendring.BlockSize, 1)
	if err != nil {
		return err
	}
	q := p.queue("writes", rateWrites, verbs.RingInit{}, false)
	if p.err != nil {
		return p.err
	}
	src := p.Pool.Put(make([]byte, r.Load.Bytes))
	b, err := m.Manager.Dial(p.Last(), r.Server, Service, rdmacm.Params{Timeout: experiment.StallTimeout}, regionOf(p.MR), m.Context.Runtime().Now().Add(dialPatience))
	if err != nil {
		return err
	}
	var far memgrant.Region
	if err := far.Parse(b); err != nil {
		return err
	}
	to := redn.Mem{Addr: far.Addr, RKey: far.RKey, Len: far.Len}
	write := q.Write
	if r.Load.Way == "MAX" {
		write = func(f sendring.Flags, dst, src redn.Mem) *redn.Request { return q.Max(f, dst, src) }
	}
	for range rateWrites - 1 {
		write(0, to, src)
	}
	write(sendring.Signalled, to, src)
	if err := r.Ready(m.Context.Runtime()); err != nil {
		return err
	}
	took, err := p.timed(0, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Rate += rateWrites / took.Seconds()
	return err
}
