package engine

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var (
	macA = wire.MAC{2, 0, 0, 0, 0, 1}
	macB = wire.MAC{2, 0, 0, 0, 0, 2}
	ipA  = netip.MustParseAddr("10.77.0.1")
	ipB  = netip.MustParseAddr("10.77.0.2")
	ip6A = netip.MustParseAddr("fd77::1")
	ip6B = netip.MustParseAddr("fd77::2")
)

var neighbours = map[netip.Addr]wire.MAC{ipA: macA, ipB: macB, ip6A: macA, ip6B: macB}

func newEngine(t testing.TB, name string, seed uint64, mac wire.MAC, change func(*Config), addrs ...netip.Addr) *Engine {
	t.Helper()
	cfg := Config{
		Name: name, MAC: mac, Rand: rand.New(rand.NewPCG(seed, 0)),
		Resolve: func(a netip.Addr) (wire.MAC, bool) { m, ok := neighbours[a]; return m, ok },
	}
	for _, a := range addrs {
		cfg.GIDs = append(cfg.GIDs, verbs.GIDOf(a))
	}
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// side is one NIC with one object of each kind.
type side struct {
	e    *Engine
	pd   *PD
	cq   *CQ
	mr   *MR
	qp   *QP
	out  packetio.Batch
	in   packetio.Batch
	base uint64
	key  uint32 // memory for peers
	lkey uint32
	buf  []byte
}

const regionLen = 64 << 10

func newSide(t testing.TB, e *Engine) *side {
	t.Helper()
	s := &side{e: e, buf: make([]byte, regionLen)}
	var err error
	if s.pd, err = e.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if s.cq, err = e.CreateCQ(1024); err != nil {
		t.Fatal(err)
	}
	if s.mr, err = e.RegMR(s.pd, s.buf, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
		t.Fatal(err)
	}
	if s.qp, err = e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{}); err != nil {
		t.Fatal(err)
	}
	r, err := s.mr.Region()
	if err != nil {
		t.Fatal(err)
	}
	s.base, s.key, s.lkey = r.Base(), r.RKey(), r.LKey()
	return s
}

func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.base + uint64(off), Length: uint32(n), LKey: s.lkey}
}

func (s *side) poll(t testing.TB) []verbs.WC {
	t.Helper()
	q, err := s.cq.Queue()
	if err != nil {
		t.Fatal(err)
	}
	wc := make([]verbs.WC, q.Len())
	return wc[:q.Poll(wc)]
}

// pair is two NICs joined by a cable, in virtual time.
type pair struct {
	a, b *side
	now  clock.Time
	// tap is called for every frame; if it returns false, the frame is lost.
	tap func(from *side, f packetio.Frame) bool
}

const testPSN = 0xfffff0 // so that PSNs wrap soon

func newPair(t testing.TB, change func(*Config)) *pair {
	t.Helper()
	return connectPair(t, newSide(t, newEngine(t, "a", 1, macA, change, ipA, ip6A)),
		newSide(t, newEngine(t, "b", 2, macB, change, ipB, ip6B)), 0, verbs.MTU1024)
}

func connectPair(t testing.TB, a, b *side, gid int, mtu verbs.MTU) *pair {
	t.Helper()
	p := &pair{a: a, b: b}
	connect(t, p.now, a.qp, b.qp, gid, mtu)
	connect(t, p.now, b.qp, a.qp, gid, mtu)
	return p
}

func connect(t testing.TB, now clock.Time, q, peer *QP, gid int, mtu verbs.MTU) {
	t.Helper()
	if err := q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}); err != nil {
		t.Fatal(err)
	}
	if err := q.ToRTR(now, verbs.ToRTR{
		DestQPN: peer.Num(), DestGID: peer.e.cfg.GIDs[gid], SourceGID: gid, RecvPSN: testPSN, PathMTU: mtu, MinRNRTimer: 12,
	}); err != nil {
		t.Fatal(err)
	}
	if err := q.ToRTS(now, verbs.ToRTS{SendPSN: testPSN, Timeout: 14, RetryCount: 7, RNRRetry: 7}); err != nil {
		t.Fatal(err)
	}
}

// exchange delivers the frames of one direction, and returns how many there were.
func (p *pair) exchange(from, to *side) int {
	from.in, from.out = from.out, from.in
	from.out.Reset()
	n := len(from.in.Frames)
	for _, f := range from.in.Frames {
		if p.tap == nil || p.tap(from, f) {
			to.e.Frame(p.now, 0, f, &to.out)
		}
	}
	to.e.EndBatch(p.now, &to.out)
	return n
}

// settle delivers frames until none is in flight; it does not advance time.
func (p *pair) settle(t testing.TB) {
	t.Helper()
	for range 10000 {
		if p.exchange(p.a, p.b)+p.exchange(p.b, p.a) == 0 {
			return
		}
	}
	t.Fatal("frames go back and forth without end")
}

// run advances the time from deadline to deadline, until until returns true or no deadline is left.
func (p *pair) run(t testing.TB, until clock.Time) {
	t.Helper()
	p.settle(t)
	for range 100000 {
		at := clock.Min(p.a.e.Deadline(), p.b.e.Deadline())
		if at > until {
			return
		}
		p.now = max(p.now, at)
		p.a.e.Tick(p.now, &p.a.out)
		p.b.e.Tick(p.now, &p.b.out)
		p.settle(t)
	}
	t.Fatal("deadlines never end")
}

func (p *pair) post(t testing.TB, s *side, wr ...verbs.SendWR) {
	t.Helper()
	if err := s.qp.PostSend(p.now, wr, &s.out); err != nil {
		t.Fatal(err)
	}
}

const second = clock.Time(time.Second)

func parse(t testing.TB, b []byte) wire.Frame {
	t.Helper()
	var f wire.Frame
	if err := wire.ParseFrame(b, &f); err != nil {
		t.Fatalf("%v in % x", err, b)
	}
	return f
}
