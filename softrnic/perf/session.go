package perf

import (
	"cmp"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// session runs the operations of a test over one channel. Only one thread uses it.
type session struct {
	cfg Config
	channel
	Teller
	sges []verbs.SGE // the slots of the local memory, one SGE each
	pat  Pattern

	wcs   [64]verbs.WC
	batch []verbs.SendWR
}

// open connects to the service with the requirements of the plan.
func open(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, cfg Config, p plan, progress func(Progress)) (*session, error) {
	s := &session{cfg: cfg, pat: Pattern{cfg.Seed}, Teller: Teller{Now: ctx.Runtime().Now, Call: progress}}
	s.channel = channel{ctx: ctx, rt: ctx.Runtime(), dialer: d, to: to, peer: cmp.Or(cfg.To, to.String())}
	return s, s.channel.open(&s.cfg, &p)
}

// slots divides the local memory into slots of size bytes, one SGE each.
func (s *session) slots(size int) {
	s.sges = s.sges[:0]
	for off := 0; off+size <= len(s.buf); off += size {
		s.sges = append(s.sges, s.mr.SGE(off, size))
	}
}

// slot returns the memory of SGE i.
func (s *session) slot(i int) []byte {
	n := int(s.sges[i].Length)
	return s.buf[i*n : (i+1)*n]
}

// check returns a DataError if the bytes of a slot are not those of message msg.
func (s *session) check(op string, slot []byte, msg uint64) error {
	off := s.pat.Check(slot, msg)
	if off < 0 {
		return nil
	}
	want := make([]byte, len(slot))
	s.pat.Fill(want, msg)
	return &DataError{Op: op, Msg: msg, Offset: off, Got: uint64(slot[off]), Want: uint64(want[off])}
}
