package engine

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// testGroups are a group of each family: those of GID index 0 and 1 of the test's NICs.
var testGroups = []verbs.GID{
	{10: 0xff, 11: 0xff, 12: 239, 13: 129, 14: 2, 15: 3},
	{0: 0xff, 1: 0x0e, 15: 0x34},
}

func attach(t testing.TB, s *side, gid verbs.GID) {
	t.Helper()
	if err := s.qp.AttachMulticast(0, gid, &s.out); err != nil {
		t.Fatal(err)
	}
}

// membership reads the messages of IGMP and MLD that a side has sent, and removes them.
func membership(t testing.TB, s *side) (list []wire.Membership) {
	t.Helper()
	s.out.Frames = slices.DeleteFunc(s.out.Frames, func(f packetio.Frame) bool {
		var m wire.Membership
		if m.Parse(f.Data) != nil {
			return false
		}
		list = append(list, m)
		return true
	})
	return list
}

func toGroup(s *side, ah *AH, n int) verbs.SendWR {
	return verbs.SendWR{
		Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{s.sge(0, n)},
		AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: testQKey,
	}
}

// One datagram to a group reaches each queue pair that is attached, on the receiving NIC and on the
// sending one, the sender's own among them (IBTA 10.5.1/copies). It goes to the queue pair number of
// multicast (IBTA 10.5.2/qpn) with the MAC address of the group, and the GRH area names the group.
func TestMulticast(t *testing.T) {
	for gid, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			p := newUDPair(t, nil)
			group := testGroups[gid]
			second, third, apart := udSide(t, p.b.e), udSide(t, p.a.e), udSide(t, p.b.e)
			for _, s := range []*side{p.a, p.b, second, third} {
				attach(t, s, group)
			}
			all := []*side{p.a, p.b, second, third, apart}
			for _, s := range all {
				recvInto(t, s, 8192, 2040)
			}
			membership(t, p.a)
			var frames []wire.Frame
			p.tap = func(_ *side, f packetio.Frame) bool {
				if fr := (wire.Frame{}); wire.ParseFrame(f.Data, &fr) == nil {
					frames = append(frames, parse(t, bytes.Clone(f.Data)))
				}
				return true
			}
			fill(p.a.buf[:2000], 7)
			ah := ahTo(t, p.a, verbs.AHAttr{DestGID: group, SourceGID: gid, HopLimit: 1, TrafficClass: 0x20})
			p.post(t, p.a, toGroup(p.a, ah, 2000))
			p.settle(t)
			for i, s := range all {
				wc := s.poll(t)
				wc = slices.DeleteFunc(wc, func(w verbs.WC) bool { return w.Opcode == verbs.WCSend })
				if s == apart {
					if len(wc) != 0 {
						t.Errorf("a queue pair that is not attached received %+v", wc)
					}
					continue
				}
				if len(wc) != 1 || wc[0].Status != verbs.Success || wc[0].ByteLen != 2040 || wc[0].SrcQPN != p.a.qp.Num() {
					t.Fatalf("side %d received %+v", i, wc)
				}
				if !bytes.Equal(s.buf[8232:8232+2000], p.a.buf[:2000]) {
					t.Errorf("side %d has wrong data", i)
				}
				g, err := verbs.ParseGRH(s.buf[8192:])
				if want := (verbs.GRH{Source: p.a.e.cfg.GIDs[gid], Dest: group, TrafficClass: 0x20, HopLimit: 1}); err != nil || g != want {
					t.Errorf("side %d: GRH %+v, %v", i, g, err)
				}
			}
			if len(frames) != 1 || frames[0].Eth.Dst != wire.GroupMAC(group.Addr()) || frames[0].BTH.DestQP != 0xffffff || frames[0].V6 != (gid == 1) {
				t.Errorf("frames %+v", frames)
			}
			if a, b := p.a.e.counters, p.b.e.counters; a.SentPkts != 1 || a.RcvdMulticast != 2 || b.RcvdMulticast != 2 || b.RcvdPkts != 1 {
				t.Errorf("sent %d, copies %d and %d", a.SentPkts, a.RcvdMulticast, b.RcvdMulticast)
			}
		})
	}
}

// What a queue pair of a group does not accept is dropped and counted by its reason, and the others
// receive it.
func TestMulticastDropped(t *testing.T) {
	group := testGroups[0]
	for name, c := range map[string]struct {
		change  func(f *wire.Frame)
		counter func(e *Engine) uint64
		copies  int
	}{
		"":                   {func(*wire.Frame) {}, func(e *Engine) uint64 { return 1 }, 2},
		"queue pair number":  {func(f *wire.Frame) { f.BTH.DestQP = 5 }, func(e *Engine) uint64 { return e.counters.RxUnknownQP }, 0},
		"management":         {func(f *wire.Frame) { f.BTH.DestQP = 1 }, func(e *Engine) uint64 { return e.counters.RxUnknownQP }, 0},
		"service":            {func(f *wire.Frame) { f.BTH.Opcode = wire.UCSendOnly }, func(e *Engine) uint64 { return e.counters.RxUnsupported }, 0},
		"another group":      {func(f *wire.Frame) { f.IPv4.Dst[3]++ }, func(e *Engine) uint64 { return e.counters.RxNotMine }, 0},
		"another MAC":        {func(f *wire.Frame) { f.Eth.Dst[5]++ }, func(e *Engine) uint64 { return e.counters.RxNotMine }, 0},
		"the NIC's MAC":      {func(f *wire.Frame) { f.Eth.Dst = macB }, func(e *Engine) uint64 { return e.counters.RxNotMine }, 0},
		"the NIC's address":  {func(f *wire.Frame) { f.IPv4.Dst = ipB.As4() }, func(e *Engine) uint64 { return e.counters.RxNotMine }, 0},
		"P_Key":              {func(f *wire.Frame) { f.BTH.PKey = 0x8001 }, func(e *Engine) uint64 { return e.counters.RxPkeyErr / 2 }, 0},
		"Q_Key, of each one": {func(f *wire.Frame) { f.DETH.QKey++ }, func(e *Engine) uint64 { return e.counters.QKeyErr / 2 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newUDPair(t, nil)
			second := udSide(t, p.b.e)
			idle, err := p.b.e.CreateQP(p.b.pd, p.b.cq, p.b.cq, verbs.QPInit{Type: verbs.UD}) // in RESET
			if err != nil {
				t.Fatal(err)
			}
			attach(t, p.b, group)
			attach(t, second, group)
			recvInto(t, p.b, 0, 200)
			recvInto(t, second, 0, 200)
			ah := ahTo(t, p.a, verbs.AHAttr{DestGID: group})
			p.post(t, p.a, toGroup(p.a, ah, 100))
			f := parse(t, p.a.out.Frames[0].Data)
			c.change(&f)
			p.b.e.Frame(0, 0, packetio.Frame{Data: f.AppendTo(nil)}, &p.b.out)
			p.b.e.EndBatch(0, &p.b.out)
			if n := c.counter(p.b.e); n != 1 {
				t.Errorf("counted %d", n)
			}
			if n := len(p.b.poll(t)) + len(second.poll(t)); n != c.copies {
				t.Errorf("%d copies, want %d", n, c.copies)
			}
			if name != "" {
				return
			}
			if err := idle.AttachMulticast(0, group, &p.b.out); err != nil {
				t.Fatal(err)
			}
			p.b.e.Frame(0, 0, packetio.Frame{Data: f.AppendTo(nil)}, &p.b.out)
			if p.b.e.counters.RxUnknownQP != 1 || p.b.e.counters.RcvdMulticast != 4 || p.b.e.counters.OutOfBuffer != 2 {
				t.Errorf("in RESET: %+v", p.b.e.counters)
			}
		})
	}
}

// Only queue pairs for datagrams attach, only to groups (IBTA 10.5.1/ud), once however often they
// ask (IBTA 10.5.1/once), and none is destroyed before it is detached (IBTA 10.5.3/destroy).
func TestAttachErrors(t *testing.T) {
	p := newUDPair(t, func(c *Config) { c.Limits.Attachments, c.Limits.GroupQPs = 3, 2 })
	b, group := p.b, testGroups[0]
	rc, err := b.e.CreateQP(b.pd, b.cq, b.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	qps := []*QP{b.qp, udSide(t, b.e).qp, udSide(t, b.e).qp}
	do := func(q *QP, gid verbs.GID) error { return q.AttachMulticast(0, gid, &b.out) }
	undo := func(q *QP, gid verbs.GID) error { return q.DetachMulticast(gid, &b.out) }
	wantErr(t, "a connection", do(rc, group), verbs.ErrInvalid)
	wantErr(t, "a unicast address", do(b.qp, verbs.GIDOf(ipA)), verbs.ErrInvalid)
	wantErr(t, "not attached", undo(b.qp, group), verbs.ErrInvalid)
	for range 3 {
		wantNone(t, "attach", do(b.qp, group))
	}
	wantErr(t, "the other one is not attached", undo(qps[1], group), verbs.ErrInvalid)
	wantNone(t, "second", do(qps[1], group))
	wantErr(t, "third of two of a group", do(qps[2], group), verbs.ErrLimit)
	wantNone(t, "third of all", do(qps[2], testGroups[1]))
	wantErr(t, "fourth of three", do(qps[1], testGroups[1]), verbs.ErrLimit)
	wantErr(t, "destroy", b.qp.Destroy(), verbs.ErrBusy)
	if n := b.e.Tables.Objects().Attachments; n != 3 {
		t.Errorf("%d attachments", n)
	}
	wantNone(t, "detach", undo(b.qp, group))
	wantErr(t, "detach twice", undo(b.qp, group), verbs.ErrInvalid)
	wantNone(t, "destroy", b.qp.Destroy())
	wantErr(t, "dead", do(b.qp, group), verbs.ErrClosed)
	wantErr(t, "dead", undo(b.qp, group), verbs.ErrClosed)
	qps[2].DetachAll(&b.out)
	qps[2].DetachAll(&b.out)
	wantNone(t, "destroy", qps[2].Destroy())
	wantErr(t, "connect to a group", connectTo(rc, group), verbs.ErrInvalid)
	b.e.Down(0)
	wantErr(t, "after a crash", do(qps[1], group), verbs.ErrClosed)
	if b.e.Deadline() != clock.Never || b.e.Tables.Objects().Attachments != 0 {
		t.Error("attachments are left after a crash")
	}
}

func connectTo(q *QP, gid verbs.GID) error {
	if err := q.ToInit(verbs.ToInit{}); err != nil {
		return err
	}
	return q.ToRTR(0, verbs.ToRTR{DestQPN: 5, DestGID: gid, PathMTU: verbs.MTU256})
}

// DetachAll leaves the groups that others are in.
func TestDetachAll(t *testing.T) {
	p := newUDPair(t, nil)
	other := udSide(t, p.b.e)
	for i := range byte(10) {
		gid := testGroups[0]
		gid[15] = i
		attach(t, p.b, gid)
		if i%3 == 0 {
			attach(t, other, gid)
		}
	}
	p.b.qp.DetachAll(&p.b.out)
	if n := p.b.e.Tables.Objects().Attachments; n != 4 || len(p.b.e.Tables.groups.order) != 4 || len(p.b.e.Tables.groups.byGID) != 4 {
		t.Errorf("%d attachments, %d groups", n, len(p.b.e.Tables.groups.order))
	}
}

// reportsUntil runs a NIC up to a time. It returns the reports of membership that the NIC sent, and
// when it sent each.
func reportsUntil(t testing.TB, s *side, from, until clock.Time) (at []clock.Time, said []wire.Membership) {
	t.Helper()
	for now := from; ; {
		for _, m := range membership(t, s) {
			at, said = append(at, now), append(said, m)
		}
		if now = max(now, s.e.Deadline()); now > until {
			return at, said
		}
		s.e.Tick(now, &s.out)
	}
}

// A group is reported twice when its first queue pair is attached, and once when its last one is
// detached.
func TestGroupReports(t *testing.T) {
	for _, gid := range testGroups {
		s := newUDPair(t, nil).b
		other := udSide(t, s.e)
		attach(t, s, gid)
		if err := other.qp.AttachMulticast(0, gid, &s.out); err != nil {
			t.Fatal(err)
		}
		at, said := reportsUntil(t, s, 0, 100*second)
		if !slices.Equal(at, []clock.Time{0, second}) {
			t.Fatalf("reports at %v", at)
		}
		source := ipB
		if gid.Addr().Is6() {
			source = verbs.LinkLocalGID(macB).Addr()
		}
		for _, m := range said {
			if m.Query || m.Old || m.Source != source || len(m.Records) != 1 ||
				m.Records[0] != (wire.GroupRecord{Type: wire.RecordToExclude, Group: gid.Addr()}) {
				t.Errorf("said %+v", m)
			}
		}
		for i, q := range []*QP{s.qp, other.qp} {
			if err := q.DetachMulticast(gid, &s.out); err != nil {
				t.Fatal(err)
			}
			_, said = reportsUntil(t, s, 100*second, 200*second)
			if len(said) != i || i == 1 && !said[0].Records[0].Leaves() {
				t.Errorf("detached %d: said %+v", i, said)
			}
		}
		if n := s.e.counters.GroupReports; n != 3 {
			t.Errorf("%d reports counted", n)
		}
	}
}

// Queries are answered once, within their time, in the format of their version; also when the port
// has a carrier again.
func TestGroupQueries(t *testing.T) {
	other := testGroups[0]
	other[15]++
	for _, old := range []bool{false, true} {
		s := newUDPair(t, nil).b
		attach(t, s, testGroups[0])
		attach(t, s, other)
		reportsUntil(t, s, 0, 10*second)
		ask := func(m wire.Membership) (at []clock.Time, said []wire.Membership) {
			m.Query, m.Source = true, ipA
			s.e.Frame(10*second, 0, packetio.Frame{Data: m.AppendTo(nil, macA)}, &s.out)
			return reportsUntil(t, s, 10*second, 30*second)
		}
		at, said := ask(wire.Membership{Old: old, Group: testGroups[0].Addr(), MaxResponse: 2 * time.Second})
		if len(said) != 1 || at[0] > 12*second || said[0].Old != old || said[0].Records[0].Group != testGroups[0].Addr() || !said[0].Records[0].Joins() {
			t.Errorf("old %v: answered %+v at %v", old, said, at)
		}
		if _, said = ask(wire.Membership{Old: old, Group: netipUnspecified4, MaxResponse: time.Second}); len(said) != 2 {
			t.Errorf("all groups: %+v", said)
		}
		s.e.SetLink(false)
		s.e.SetLink(true)
		if _, said = reportsUntil(t, s, 40*second, 50*second); len(said) != 4 {
			t.Errorf("with a carrier again: %+v", said)
		}
	}
}

var netipUnspecified4 = verbs.GIDOf4([4]byte{}).Addr()

// Groups that do not leave the link's hosts are not reported, and those of one family not for a
// query of the other.
func TestUnreported(t *testing.T) {
	s := newUDPair(t, nil).b
	attach(t, s, verbs.GIDOf4([4]byte{224, 0, 0, 1}))
	attach(t, s, verbs.GID{0: 0xff, 1: 2, 15: 1})
	attach(t, s, verbs.GID{0: 0xff, 1: 1, 15: 9})
	if at, _ := reportsUntil(t, s, 0, 10*second); len(at) != 0 {
		t.Errorf("reports at %v", at)
	}
	attach(t, s, testGroups[0])
	reportsUntil(t, s, 0, 10*second)
	m := wire.Membership{Query: true, Source: verbs.LinkLocalGID(macA).Addr(), Group: verbs.GID{}.Addr(), MaxResponse: time.Second}
	s.e.Frame(10*second, 0, packetio.Frame{Data: m.AppendTo(nil, macA)}, &s.out)
	if at, _ := reportsUntil(t, s, 10*second, 20*second); len(at) != 0 {
		t.Errorf("reports at %v", at)
	}
}

// A flood of queries makes no more reports than one query, and delays none; queries of a VLAN are
// none of the NIC's.
func TestQueryFlood(t *testing.T) {
	s := newUDPair(t, nil).b
	const n = 3 * maxReports
	for i := range n {
		attach(t, s, verbs.GIDOf4([4]byte{239, 1, byte(i >> 8), byte(i)}))
	}
	reportsUntil(t, s, 0, 10*second)
	now := 10 * second
	q := wire.Membership{Query: true, Source: ipA, Group: netipUnspecified4}
	ask := func(change func(b []byte) []byte) {
		s.e.Frame(now, 0, packetio.Frame{Data: change(q.AppendTo(nil, macA))}, &s.out)
	}
	ask(func(b []byte) []byte { return append(append(bytes.Clone(b[:12]), 0x81, 0, 0, 5), b[12:]...) })
	if s.e.Deadline() != clock.Never {
		t.Error("a query of a VLAN is answered")
	}
	same := func(b []byte) []byte { return b }
	ask(same)
	if s.e.Tick(now, &s.out); len(membership(t, s)) > n/10 {
		t.Error("a query that grants no time is answered at once")
	}
	seen := map[string]int{}
	for end := now.Add(leastResponse); now < end; now = now.Add(time.Millisecond) {
		ask(same)
		s.e.Tick(now, &s.out)
		for _, m := range membership(t, s) {
			seen[m.Records[0].Group.String()]++
		}
	}
	for range n/maxReports + 1 {
		s.e.Tick(now, &s.out)
	}
	for _, m := range membership(t, s) {
		seen[m.Records[0].Group.String()]++
	}
	if len(seen) < n*9/10 {
		t.Errorf("%d groups of %d were reported", len(seen), n)
	}
	for g, k := range seen {
		if k != 1 {
			t.Errorf("%s was reported %d times", g, k)
		}
	}
}

// Reports of many groups are spread over several calls of Tick.
func TestManyReports(t *testing.T) {
	s := newUDPair(t, nil).b
	for i := range 3 * maxReports {
		attach(t, s, verbs.GIDOf4([4]byte{239, 1, byte(i >> 8), byte(i)}))
	}
	membership(t, s)
	for i := range 3 {
		if s.e.Deadline() > second {
			t.Fatalf("deadline %v", s.e.Deadline())
		}
		s.e.Tick(second, &s.out)
		if n := len(membership(t, s)); n != maxReports {
			t.Errorf("Tick %d sends %d reports", i, n)
		}
	}
	if s.e.Deadline() != clock.Never {
		t.Errorf("deadline %v", s.e.Deadline())
	}
}

func FuzzGroupFrame(f *testing.F) {
	p := newUDPair(f, nil)
	ah := ahTo(f, p.a, verbs.AHAttr{DestGID: testGroups[0]})
	p.post(f, p.a, toGroup(p.a, ah, 100))
	f.Add(bytes.Clone(p.a.out.Frames[0].Data))
	q := wire.Membership{Query: true, Source: ipA, Group: netipUnspecified4, MaxResponse: time.Second}
	f.Add(q.AppendTo(nil, macA))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newUDPair(t, func(c *Config) { c.NoICRCCheck = true })
		for _, gid := range testGroups {
			attach(t, p.b, gid)
		}
		recvInto(t, p.b, 1000, 200)
		var fr wire.Frame
		if wire.ParseFrame(b, &fr) == nil {
			gid := testGroups[0]
			if fr.V6 {
				gid = testGroups[1]
			}
			fr.IPv4.Dst, fr.IPv6.Dst, fr.Eth.Dst = [4]byte(gid[12:]), gid, wire.GroupMAC(gid.Addr())
			fr.BTH.DestQP, fr.BTH.PKey = verbs.MulticastQPN, 0xffff
			b = fr.AppendTo(nil)
		}
		p.b.e.Frame(0, 0, packetio.Frame{Data: b}, &p.b.out)
		membership(t, p.b)
		if len(p.b.out.Frames) != 0 || !bytes.Equal(p.b.buf[:1000], make([]byte, 1000)) || !bytes.Equal(p.b.buf[1200:2000], make([]byte, 800)) {
			t.Error("answered, or wrote outside of the receive")
		}
	})
}

// Datagrams to a group allocate nothing.
func TestMulticastAllocatesNothing(t *testing.T) {
	p := newUDPair(t, nil)
	attach(t, p.a, testGroups[0])
	attach(t, p.b, testGroups[0])
	ah := ahTo(t, p.a, verbs.AHAttr{DestGID: testGroups[0]})
	wr := []verbs.SendWR{toGroup(p.a, ah, 100)}
	recv := []verbs.RecvWR{{SGL: []verbs.SGE{p.b.sge(4096, 200)}}}
	wc := make([]verbs.WC, 4)
	q, _ := p.b.cq.Queue()
	own, _ := p.a.cq.Queue()
	step := func() {
		if err := errors.Join(p.b.qp.PostRecv(recv), p.a.qp.PostSend(0, wr, &p.a.out)); err != nil {
			t.Fatal(err)
		}
		p.exchange(p.a, p.b)
		if own.Poll(wc) != 1 || q.Poll(wc) != 1 {
			t.Fatal("a completion is missing")
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func wantNone(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
