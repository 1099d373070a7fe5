package transport

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// side is one end of a connection under test: a queue pair, its NIC's state, and one region open to
// the peer.
type side struct {
	name     string
	qp       *QP
	env      *Env
	pd       mem.PD
	counters metrics.NIC
	scq, rcq *cq.CQ
	mem      *mem.Region
	buf      []byte
	out      Actions
}

const (
	allRemote = verbs.RemoteRights
	allAccess = verbs.LocalWrite | allRemote
)

// cqDepth is the depth of each completion queue of a side. Its memory is most of what a side takes.
const cqDepth = 1 << 8

func newSide(t testing.TB, name string, seed uint64, size int, cfg Config) *side {
	t.Helper()
	s := &side{name: name}
	s.env = &Env{Mem: mem.New(rand.New(rand.NewPCG(seed, 7)), 0), Counters: &s.counters}
	var err error
	if s.pd, err = s.env.Mem.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if s.scq, err = cq.New(cqDepth); err != nil {
		t.Fatal(err)
	}
	if s.rcq, err = cq.New(cqDepth); err != nil {
		t.Fatal(err)
	}
	s.buf = make([]byte, size)
	if s.mem, err = s.env.Mem.Reg(s.pd, s.buf, allAccess); err != nil {
		t.Fatal(err)
	}
	cfg.PD, cfg.SendCQ, cfg.RecvCQ = s.pd, s.scq, s.rcq
	if s.qp, err = New(s.env, cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// fastReg registers n bytes with a fast registration, which peers may invalidate.
func (s *side) fastReg(t testing.TB, n int, access verbs.Access) *mem.Region {
	t.Helper()
	r, err := s.env.Mem.AllocFast(s.pd, make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	if f := s.env.Mem.Register(s.pd, r.RKey(), verbs.SGE{Addr: r.Base(), Length: uint32(n), LKey: r.LKey()}, access); f != mem.OK {
		t.Fatal(f)
	}
	return r
}

// sge names n bytes of the side's region.
func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mem.Base() + uint64(off), Length: uint32(n), LKey: s.mem.LKey()}
}

// link holds the attributes of the connection between two sides.
type link struct {
	mtu        verbs.MTU
	psnA, psnB wire.PSN
	rtr        verbs.ToRTR // attributes of both sides, without address and PSN
	rts        verbs.ToRTS // attributes of both sides, without PSN
	access     verbs.Access
}

// connect brings both to RTS.
func connect(t testing.TB, a, b *side, l link) {
	t.Helper()
	up := func(s, peer *side, send, recv wire.PSN) {
		rtr, rts := l.rtr, l.rts
		rtr.DestQPN, rtr.RecvPSN, rtr.PathMTU = peer.qp.Num(), recv, l.mtu
		rts.SendPSN = send
		for _, err := range []error{s.qp.ToInit(verbs.ToInit{Access: l.access}), s.qp.ToRTR(0, rtr), s.qp.ToRTS(0, rts)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	up(a, b, l.psnA, l.psnB)
	up(b, a, l.psnB, l.psnA)
}

// defaultLink is the link of tests that need no other.
var defaultLink = link{
	mtu: verbs.MTU256, psnA: 0x100, psnB: 0x800000, access: allRemote,
	rtr: verbs.ToRTR{MinRNRTimer: 12}, rts: verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7},
}

// newPair returns two connected sides with 64 KiB each.
func newPair(t testing.TB) (a, b *side) {
	t.Helper()
	a = newSide(t, "a", 1, 1<<16, Config{QPN: 0x11})
	b = newSide(t, "b", 2, 1<<16, Config{QPN: 0x12})
	connect(t, a, b, defaultLink)
	return a, b
}

// deliver hands everything that s has sent to peer and files completions of s.
func (s *side) deliver(now clock.Time, peer *side) int {
	s.file()
	n := len(s.out.Tx)
	for i := range s.out.Tx {
		peer.qp.Handle(now, &s.out.Tx[i].Packet, &peer.out)
	}
	s.out.Reset()
	return n
}

// file moves completions into their queues. It panics if one has an error without a reason for its
// status, or a reason without an error.
func (s *side) file() {
	for i := range s.out.Done {
		wc := &s.out.Done[i].WC
		row, ok := reason.Code(wc.VendorErr).Row()
		if wc.Status == verbs.Success && wc.VendorErr != 0 || wc.Status != verbs.Success && (!ok || !slices.Contains(row.Statuses, wc.Status)) {
			panic(fmt.Sprintf("a completion with status %v has reason %#x (%s)", wc.Status, wc.VendorErr, row.Text))
		}
		s.out.Done[i].To.Push(0, &s.out.Done[i].WC)
	}
	s.out.Done = s.out.Done[:0]
}

// settle exchanges packets until no side has any to send.
func settle(t testing.TB, now clock.Time, a, b *side) {
	t.Helper()
	for range 10000 {
		if a.deliver(now, b)+b.deliver(now, a) > 0 {
			continue
		}
		if a.qp.Deadline() > now && b.qp.Deadline() > now {
			return
		}
		a.qp.Tick(now, &a.out)
		b.qp.Tick(now, &b.out)
	}
	t.Fatal("the pair does not become quiet")
}

// onlyWC polls the only completion of a queue.
func onlyWC(t testing.TB, c *cq.CQ) verbs.WC {
	t.Helper()
	var wc [2]verbs.WC
	if n := c.Poll(wc[:]); n != 1 {
		t.Fatalf("%d completions (%v), want 1", n, wc[:n])
	}
	return wc[0]
}

func post(t testing.TB, s *side, wr verbs.SendWR) {
	t.Helper()
	if err := s.qp.PostSend(0, &wr, &s.out); err != nil {
		t.Fatal(err)
	}
}

// postRecv posts a receive to the queue from which the queue pair takes it.
func (s *side) postRecv(wr *verbs.RecvWR) error {
	if srq := s.qp.core.cfg.SRQ; srq != nil {
		return srq.PostRecv(wr)
	}
	return s.qp.PostRecv(wr)
}

// shareReceives replaces the queue pair of a new side with one on a shared receive queue.
func shareReceives(t testing.TB, s *side, depth int) *SRQ {
	t.Helper()
	srq, err := NewSRQ(7, s.pd, verbs.SRQInit{MaxWR: depth})
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.qp.Config()
	cfg.SRQ = srq
	if s.qp, err = New(s.env, cfg); err != nil {
		t.Fatal(err)
	}
	return srq
}
