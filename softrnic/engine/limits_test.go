package engine

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The defaults are those that the fields' comments say; each limit that is set stays.
func TestDefaultLimits(t *testing.T) {
	want := Limits{
		PDs: 1024, MRs: 65536, CQs: 16384, QPs: 16384, AHs: 65536, SRQs: 4096, CQE: 1 << 22, QPWR: 16384, SGE: 32, Inline: 1024,
		RdAtomic: 128, DeviceMemory: 262144, Attachments: 4096, GroupQPs: 64, AsyncEvents: 256,
	}
	if c := (Config{}).withDefaults(); c.Limits != want || c.LinkMTU != 4200 {
		t.Errorf("link MTU %d, %+v, want 4200, %+v", c.LinkMTU, c.Limits, want)
	}
	one := Limits{PDs: 1, MRs: 1, CQs: 1, QPs: 1, AHs: 1, SRQs: 1, CQE: 1, QPWR: 1, SGE: 1, Inline: 1, RdAtomic: 1, DeviceMemory: 1, Attachments: 1, GroupQPs: 1, AsyncEvents: 1}
	if c := (Config{Limits: one, LinkMTU: 1500}).withDefaults(); c.Limits != one || c.LinkMTU != 1500 {
		t.Errorf("%+v", c)
	}
}

// Every limit is reached and not passed.
func TestLimitsAreExact(t *testing.T) {
	e := newEngine(t, "a", 1, macA, func(c *Config) {
		c.Limits = Limits{PDs: 3, CQs: 3, QPs: 3, AHs: 3, SRQs: 3, MRs: 3, CQE: 8, QPWR: 8, SGE: 8, Inline: 8, RdAtomic: 8, DeviceMemory: 8, AsyncEvents: 3}
	}, ipA)
	pd := made(e.AllocPD())
	for name, make := range map[string]func() error{
		"PDs":  func() error { _, err := e.AllocPD(); return err },
		"CQs":  func() error { _, err := e.CreateCQ(8); return err },
		"SRQs": func() error { _, err := e.CreateSRQ(pd, verbs.SRQInit{MaxWR: 8, MaxSGE: 8}); return err },
		"AHs": func() error {
			_, err := e.CreateAH(pd, verbs.AHAttr{DestGID: verbs.GIDOf(ipB)})
			return err
		},
		"MRs": func() error { _, err := e.RegMR(pd, []byte{1}, 0); return err },
	} {
		n := 3
		if name == "PDs" {
			n = 2 // one was made before
		}
		for i := range n {
			if err := make(); err != nil {
				t.Errorf("%s: object %d: %v", name, i, err)
			}
		}
		wantErr(t, name, make(), verbs.ErrLimit)
	}
	cq := made(newEngine(t, "b", 2, macA, nil, ipA).CreateCQ(1)) // any will do
	f := newEngine(t, "c", 3, macA, func(c *Config) {
		c.Limits = Limits{QPs: 3, CQE: 8, QPWR: 8, SGE: 8, Inline: 8, RdAtomic: 8, DeviceMemory: 8}
	}, ipA)
	fpd := made(f.AllocPD())
	full := verbs.QPInit{MaxSendWR: 8, MaxRecvWR: 8, MaxSGE: 8, MaxInline: 8}
	for name, change := range map[string]func(*verbs.QPInit){
		"sends": func(i *verbs.QPInit) { i.MaxSendWR++ }, "receives": func(i *verbs.QPInit) { i.MaxRecvWR++ },
		"pieces": func(i *verbs.QPInit) { i.MaxSGE++ }, "inline": func(i *verbs.QPInit) { i.MaxInline++ },
	} {
		init := full
		change(&init)
		wantErr(t, name, errOf(f.CreateQP(fpd, cq, cq, init)), verbs.ErrLimit)
	}
	for name, change := range map[string]func(*verbs.QPInit){
		"sends": func(i *verbs.QPInit) { i.MaxSendWR = -1 }, "receives": func(i *verbs.QPInit) { i.MaxRecvWR = -1 },
		"pieces": func(i *verbs.QPInit) { i.MaxSGE = -1 }, "inline": func(i *verbs.QPInit) { i.MaxInline = -1 },
	} {
		init := full
		change(&init)
		wantErr(t, name, errOf(f.CreateQP(fpd, cq, cq, init)), verbs.ErrInvalid)
	}
	var qps []*QP
	for range 3 {
		qps = append(qps, made(f.CreateQP(fpd, cq, cq, full)))
	}
	wantErr(t, "QPs", errOf(f.CreateQP(fpd, cq, cq, full)), verbs.ErrLimit)
	wantErr(t, "receives of an SRQ", errOf(f.CreateSRQ(fpd, verbs.SRQInit{MaxWR: 9})), verbs.ErrLimit)
	wantErr(t, "pieces of an SRQ", errOf(f.CreateSRQ(fpd, verbs.SRQInit{MaxSGE: 9})), verbs.ErrLimit)
	wantErr(t, "CQ entries", errOf(f.CreateCQ(9)), verbs.ErrLimit)
	if errOf(f.CreateCQ(8)) != nil || errOf(f.AllocDM(8)) != nil {
		t.Error("a limit cannot be reached")
	}
	q := qps[0]
	rtr := verbs.ToRTR{DestGID: f.cfg.GIDs[0], PathMTU: verbs.MTU256, MaxDestRdAtomic: 9}
	if err := q.ToInit(verbs.ToInit{}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "responder resources", q.ToRTR(0, rtr), verbs.ErrLimit)
	rtr.MaxDestRdAtomic = 8
	if err := q.ToRTR(0, rtr); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "initiator depth", q.ToRTS(0, verbs.ToRTS{MaxRdAtomic: 9}), verbs.ErrLimit)
	if err := q.ToRTS(0, verbs.ToRTS{MaxRdAtomic: 8}); err != nil {
		t.Fatal(err)
	}
}

// made is the first result of a call that must succeed.
func made[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// numbers is a source of random numbers that gives those of a list.
type numbers []uint32

// Uint64 has the number in its upper half, which Rand.Uint32 returns.
func (n *numbers) Uint64() uint64 {
	v := uint64((*n)[0]) << 32
	*n = (*n)[1:]
	return v
}

// Queue pairs 0 and 1 are for management, and 0xffffff means multicast: all others can be given
// out, each once (IBTA 3.9.4).
func TestNumbersOfQueuePairs(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	r := rand.New(&numbers{0, 1, 2, 0xffffff, 0xfffffe, 2, 0x11000003})
	for _, want := range []wire.QPN{2, 0xfffffe, 3} {
		n, ok := e.Tables.newQPN(r)
		if n != want || !ok {
			t.Fatalf("%#x, %v, want %#x", uint32(n), ok, uint32(want))
		}
		e.Tables.qps[n] = &QP{}
	}
	taken := numbers(make([]uint32, maxQPNTries+1))
	if n, ok := e.Tables.newQPN(rand.New(&taken)); ok || len(taken) != 1 {
		t.Errorf("%#x after %d tries", uint32(n), maxQPNTries+1-len(taken))
	}
}

// A MAC's name in management datagrams is its EUI-64.
func TestGUID(t *testing.T) {
	if g := verbs.EUI64(wire.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}); g != 0x001122fffe334455 {
		t.Errorf("%#x", g)
	}
}

// A domain with one object of any kind stays.
func TestDomainsStay(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	cq := made(e.CreateCQ(1))
	for name, make := range map[string]func(*PD) (end func() error){
		"queue pair":           func(pd *PD) func() error { return made(e.CreateQP(pd, cq, cq, verbs.QPInit{})).Destroy },
		"shared receive queue": func(pd *PD) func() error { return made(e.CreateSRQ(pd, verbs.SRQInit{})).Destroy },
		"address": func(pd *PD) func() error {
			return made(e.CreateAH(pd, verbs.AHAttr{DestGID: verbs.GIDOf(ipB)})).Destroy
		},
		"region":      func(pd *PD) func() error { return made(e.RegMR(pd, []byte{1}, 0)).Dereg },
		"far region":  func(pd *PD) func() error { return made(pd.RegFarMR(nowhere{}, 0, 0, 1, 0)).Dereg },
		"fast region": func(pd *PD) func() error { return made(pd.AllocFastMR([]byte{1})).Dereg },
		"window":      func(pd *PD) func() error { return made(e.AllocMW(pd)).Dealloc },
	} {
		pd := made(e.AllocPD())
		end := make(pd)
		wantErr(t, name, pd.Dealloc(), verbs.ErrBusy)
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := pd.Dealloc(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// nowhere is far memory that is not there.
type nowhere struct{}

func (nowhere) Read([]byte, uint64) bool  { return false }
func (nowhere) Write([]byte, uint64) bool { return false }

// Memory of a program counts as a region, and one that is refused does not.
func TestFarRegions(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	pd := made(e.AllocPD())
	mr := made(pd.RegFarMR(nowhere{}, 1000, 5000, 64, verbs.RemoteRead))
	if r := made(mr.Region()); r.Base() != 5000 || e.Tables.Objects().MRs != 1 || e.Tables.Objects().Bytes != 64 {
		t.Errorf("base %d, %+v", r.Base(), e.Tables.Objects())
	}
	wantErr(t, "no bytes", errOf(pd.RegFarMR(nowhere{}, 0, 0, 0, 0)), verbs.ErrInvalid)
	if e.Tables.Objects().MRs != 1 {
		t.Errorf("%+v", e.Tables.Objects())
	}
	if err := mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	if err := pd.Dealloc(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a domain that has ended", errOf(pd.RegFarMR(nowhere{}, 0, 0, 1, 0)), verbs.ErrClosed)
}

// One packet makes the NIC due at once, until the end of the receive batch; a NIC that has crashed
// in between is not due, and neither is one that has come back.
func TestDeadlineOfAReceiveBatch(t *testing.T) {
	p := newPair(t, nil)
	p.now = 77
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key})
	f := p.a.out.Frames[0]
	p.b.e.Frame(p.now, 0, f, &p.b.out)
	if at := p.b.e.Deadline(); at != p.now {
		t.Errorf("deadline %v, want %v", at, p.now)
	}
	p.b.e.EndBatch(p.now, &p.b.out)
	if at := p.b.e.Deadline(); at != clock.Never || len(p.b.out.Frames) != 1 {
		t.Errorf("deadline %v, %d frames", at, len(p.b.out.Frames))
	}
	p.b.e.Frame(p.now, 0, f, &p.b.out)
	p.b.e.Down(0)
	if at := p.b.e.Deadline(); at != clock.Never {
		t.Errorf("deadline %v of a NIC that is down", at)
	}
	p.b.e.Up()
	if at := p.b.e.Deadline(); at != clock.Never {
		t.Errorf("deadline %v of a new NIC", at)
	}
}

// What the NIC sends to itself in one step is bounded; the rest makes it due at once.
func TestDeadlineOfTheLoop(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	e.tx.loop.Add(0, nil)
	e.rx.batchAt = 5
	if at := e.Deadline(); at != 5 {
		t.Errorf("deadline %v, want 5", at)
	}
}

// A queue pair that was destroyed leaves no deadline, even if its last step is carried out later,
// and the list of those that are due has no old ones.
func TestNoDeadlineOfTheDead(t *testing.T) {
	p := newPair(t, nil)
	e := p.a.e
	wr := verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key}
	p.post(t, p.a, wr)
	at := e.Deadline()
	if at == clock.Never {
		t.Fatal("no timer runs")
	}
	for range 2 {
		if due := e.sched.collect(at); len(due) != 1 {
			t.Fatalf("%d are due", len(due))
		}
		e.sched.rekey(p.a.qp)
	}
	if due := e.sched.collect(at - 1); len(due) != 0 {
		t.Errorf("%d are due too early", len(due))
	}
	if err := p.a.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	e.sched.rekey(p.a.qp)
	if e.Deadline() != clock.Never {
		t.Errorf("deadline %v", e.Deadline())
	}
}

// Frames of other stations are counted here, those to groups behind the parser, and broken ones not
// at all.
func TestFramesOfOthers(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	for _, c := range []struct {
		frame string
		mine  bool
		other bool
	}{
		{string(macA[:]), true, false},
		{string(macB[:]), false, true},
		{"\x01\x00\x5e\x00\x00\x01", true, false},
		{"\x03\x00\x00\x00\x00\x01", true, false},
		{string(macB[:5]), false, false},
		{string(macA[:5]), false, false},
		{"", false, false},
	} {
		if mine, other := e.Port.isMyMAC([]byte(c.frame)); mine != c.mine || other != c.other {
			t.Errorf("%x: mine %v, of another %v", c.frame, mine, other)
		}
	}
}

// The datagrams of queue pair 1 have consecutive PSNs. A question of a NIC to itself is answered
// within the call.
func TestManagementDatagrams(t *testing.T) {
	p := unconnected(t)
	g := gsi(t, p.a.e)
	for range 3 {
		if _, err := g.Resolve(0, ipA, ipB, mad.SIDRReq{Service: testService, PKey: wire.DefaultPKey}, &p.a.out); err != nil {
			t.Fatal(err)
		}
	}
	var first wire.PSN
	for i, f := range p.a.out.Frames {
		psn := parse(t, f.Data).BTH.PSN
		if i == 0 {
			first = psn
		}
		if psn != first.Add(i) {
			t.Errorf("datagram %d has PSN %#x, the first has %#x", i, uint32(psn), uint32(first))
		}
	}
	c, err := g.Resolve(0, ipA, ipA, mad.SIDRReq{Service: testService + 1, PKey: wire.DefaultPKey}, &p.a.out)
	if err != nil || c.Answered == nil || c.Answered.Status != mad.SIDRUnsupported {
		t.Errorf("%+v, %v", c, err)
	}
}

// Numbers of shared receive queues and addresses go round past 0, which is none, and past those in
// use.
func TestNumbersGoRound(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	pd := made(e.AllocPD())
	last := map[string]uint32{"SRQ": wire.MaxSRQN, "AH": math.MaxUint32} // requests of XRC name SRQs by 24 bits
	for name, make := range map[string]func() uint32{
		"SRQ": func() uint32 {
			return made(made(e.CreateSRQ(pd, verbs.SRQInit{})).Query()).ID
		},
		"AH": func() uint32 { return made(e.CreateAH(pd, verbs.AHAttr{DestGID: verbs.GIDOf(ipB)})).Handle() },
	} {
		e.Tables.nextSRQ, e.Tables.nextAH = 0, 0
		got := []uint32{make()}
		e.Tables.nextSRQ, e.Tables.nextAH = wire.MaxSRQN-1, math.MaxUint32-1
		got = append(got, make(), make())
		if want := []uint32{1, last[name], 2}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A refused connection leaves a queue pair that is not connected yet as it is; the key of a window
// that is gone is none.
func TestRefusedBeforeItIsUp(t *testing.T) {
	p := unconnected(t)
	if err := p.a.qp.ToInit(verbs.ToInit{}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, p, ipA, ipB)
	p.settle(t)
	if c.End != cm.EventRejected {
		t.Fatalf("end %v", c.End)
	}
	if a := made(p.a.qp.Query()); a.State != verbs.StateInit {
		t.Errorf("the queue pair is in %v", a.State)
	}
	w := made(p.a.e.AllocMW(p.a.pd))
	if err := w.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if key, err := w.RKey(); key != 0 || err == nil {
		t.Errorf("%#x, %v", key, err)
	}
}

// Queue pairs that are due take turns: the one behind the one that was served last is the first.
func TestTurnsOfQueuePairs(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	qps := map[wire.QPN]*QP{}
	s := newSide(t, e)
	for range 3 {
		q := made(e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{}))
		qps[q.Num()] = q
	}
	nums := slices.Sorted(maps.Keys(qps))
	for served, want := range map[wire.QPN][3]int{0: {0, 1, 2}, nums[0]: {1, 2, 0}, nums[1]: {2, 0, 1}, nums[2]: {0, 1, 2}} {
		for _, q := range qps {
			e.sched.due.Set(q.place, 1)
		}
		e.sched.served = served
		var got []wire.QPN
		for _, q := range e.sched.collect(1) {
			got = append(got, q.Num())
		}
		if !slices.Equal(got, []wire.QPN{nums[want[0]], nums[want[1]], nums[want[2]]}) {
			t.Errorf("behind %#x: %x, of %x", uint32(served), got, nums)
		}
	}
	// Two take turns, too, although the later number is due first.
	e.sched.due.Set(qps[nums[1]].place, 0)
	e.sched.due.Set(qps[nums[0]].place, 1)
	e.sched.served = nums[2]
	if two := e.sched.collect(1); len(two) != 2 || two[0].Num() != nums[0] || two[1].Num() != nums[1] {
		t.Errorf("%d are due", len(two))
	}
}

// A packet is counted with its bytes at both ends, Notify changes Activity, and a window that is
// gone does not exist.
func TestCounts(t *testing.T) {
	p := newPair(t, nil)
	a, b := *p.a.e.Counters(), *p.b.e.Counters()
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key})
	n := uint64(len(p.a.out.Frames[0].Data))
	p.exchange(p.a, p.b)
	after, at := p.a.e.Counters(), p.b.e.Counters()
	if after.SentPkts-a.SentPkts != 1 || after.SentBytes-a.SentBytes != n || at.RcvdPkts-b.RcvdPkts != 1 || at.RcvdBytes-b.RcvdBytes != n {
		t.Errorf("%d bytes sent, %d received of %d", after.SentBytes-a.SentBytes, at.RcvdBytes-b.RcvdBytes, n)
	}
	before := p.a.e.Events.Activity()
	p.a.e.Events.Notify()
	gsi(t, p.a.e).Notify()
	if p.a.e.Events.Activity() != before+2 {
		t.Error("Notify changes nothing")
	}
	w := made(p.a.e.AllocMW(p.a.pd))
	if p.a.e.Tables.Objects().MWs != 1 {
		t.Errorf("%+v", p.a.e.Tables.Objects())
	}
	if err := w.Dealloc(); err != nil || p.a.e.Tables.Objects().MWs != 0 {
		t.Errorf("%v, %+v", err, p.a.e.Tables.Objects())
	}
}

// A thread that waits for a connection whose queue pair is destroyed learns of it at the next step.
func TestDestroyedWhileConnecting(t *testing.T) {
	p := unconnected(t)
	c := dial(t, p, ipA, ipB)
	if err := p.a.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	before := p.a.e.Events.Activity()
	if c.Dead() || p.a.e.Deadline() > p.now {
		t.Fatalf("dead %v, deadline %v", c.Dead(), p.a.e.Deadline())
	}
	p.a.e.gsi.endGone(p.now)
	if !c.Dead() || p.a.e.Events.Activity() == before {
		t.Errorf("dead %v, activity %d, was %d", c.Dead(), p.a.e.Events.Activity(), before)
	}
}
