package conntrack

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Each message of a connection manager counts as a valid one or as a stray, also one that comes
// again.
func TestMessagesAreCounted(t *testing.T) {
	r := newRig(t, nil)
	var want Stats
	say := func(valid bool, f *wire.Frame) {
		t.Helper()
		if r.see(f); valid {
			want.Datagrams++
		} else {
			want.Strays++
		}
		if st := r.Stats(); st.Datagrams != want.Datagrams || st.Strays != want.Strays {
			t.Fatalf("%d valid messages and %d strays, want %d and %d", st.Datagrams, st.Strays, want.Datagrams, want.Strays)
		}
	}
	req := datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 500))
	rep := datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x22, PSN: 900})
	say(false, rep)
	say(true, req)
	say(true, req)
	say(false, datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0, PSN: 900}))
	say(false, datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: gsi, PSN: 900}))
	say(false, datagram(3, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x22, PSN: 900}))
	say(true, rep)
	say(true, rep)
	say(true, req)
	say(false, datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x23, PSN: 900}))
	say(false, datagram(2, 1, &mad.REP{LocalID: 0xb2, RemoteID: 0xa1, QPN: 0x22, PSN: 900}))
	say(true, datagram(1, 2, &mad.RTU{LocalID: 0xa1, RemoteID: 0xb1}))
	say(false, datagram(1, 2, &mad.RTU{LocalID: 0xa1, RemoteID: 0xb2}))
	say(false, datagram(2, 1, reject(0xb1, 0xa1))) // it is in use
	say(false, datagram(2, 1, &mad.DREP{LocalID: 0xb1, RemoteID: 0xa1}))
	say(true, datagram(1, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x22}))
	say(true, datagram(2, 1, &mad.DREP{LocalID: 0xb1, RemoteID: 0xa1}))
	if st := r.Stats(); st.Announced != 1 || st.Ended != 1 || st.Closed != 2 || st.Flows != 2 {
		t.Errorf("%+v", st)
	}
	// Refusals of a handshake that has a REP, of one that has none, and of none.
	r.connectAs(0xa2, 0xb2, 0x12, 0x23)
	want.Datagrams += 2
	say(true, datagram(2, 1, reject(0xb2, 0xa2)))
	say(false, datagram(2, 1, reject(0xb2, 0xa2)))
	say(true, datagram(1, 2, reqFrom(1, 2, 0xa3, 0x13, 500)))
	say(false, datagram(1, 2, &mad.DREQ{LocalID: 0xa3, QPN: 0x22}))
	say(true, datagram(2, 1, reject(0, 0xa3)))
	// A connection that was learnt from its packets.
	r.learn(4, 2, 0x44, 0x55, 9)
	say(true, datagram(2, 4, &mad.DREQ{LocalID: 0x1, RemoteID: 0x2, QPN: 0x44}))
	say(false, datagram(2, 4, &mad.DREQ{LocalID: 0x1, RemoteID: 0x2, QPN: 0x44}))
	if fl := r.flow(4, 2, 0x55); fl.State != Closing || fl.Peer.State != Closing {
		t.Errorf("%v, %v", fl.State, fl.Peer.State)
	}
}

// connectAs announces a connection of hosts 1 and 2 with the given communication IDs and queue pairs.
func (r *rig) connectAs(a, b mad.CommID, qa, qb wire.QPN) *Flow {
	r.see(datagram(1, 2, reqFrom(1, 2, a, qa, 500)))
	r.see(datagram(2, 1, &mad.REP{LocalID: b, RemoteID: a, QPN: qb, PSN: 900}))
	return r.flow(1, 2, qb)
}

// A REQ that comes again is remembered for longer; one with another queue pair or PSN replaces the
// one before. What has no REP is bounded for each host and for all.
func TestRememberedRequests(t *testing.T) {
	r := newRig(t, nil)
	req := datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 500))
	r.see(req)
	begin := r.now
	r.now = begin.Add(50 * time.Second)
	r.see(req)
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{setupTime + time.Second, 1}, {50*time.Second + setupTime - time.Second, 1}, {50*time.Second + setupTime + 2*time.Second, 0}} {
		r.now = begin.Add(c.at)
		if r.Tick(r.now); len(r.setups.asked) != c.want {
			t.Errorf("after %v: %d wait", c.at, len(r.setups.asked))
		}
	}
	for qpn := range wire.QPN(5) {
		r.see(datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11+qpn, 500)))
	}
	r.see(datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 501)))
	if h := r.hosts.byAddr[addr(1)]; len(r.setups.asked) != 1 || h.setups != 1 {
		t.Errorf("%d wait, %d of the host", len(r.setups.asked), h.setups)
	}
	r = newRig(t, func(c *Config) { c.Connections = 4096 })
	for i := range maxSetupsPerHost + 3 {
		r.see(datagram(1, 2, reqFrom(1, 2, mad.CommID(i+1), wire.QPN(0x100+i), 1)))
	}
	r.see(datagram(3, 2, reqFrom(3, 2, 1, 0x100, 1)))
	if st := r.Stats(); len(r.setups.asked) != maxSetupsPerHost+1 || st.NoRoom != 3 || st.Strays != 3 {
		t.Errorf("%d wait, %+v", len(r.setups.asked), st)
	}
}

// Listings show the flows in use, how each was learnt, and its peer.
func TestListedFlows(t *testing.T) {
	r := newRig(t, nil)
	learnt := r.learn(1, 2, 0x11, 0x22, 100)
	named := r.connectAs(0xa1, 0xb1, 0x12, 0x23)
	alone := r.ask(packet(3, 2, 0x24, wire.RCWriteOnly, 5)).Flow
	gone := r.ask(packet(4, 2, 0x25, wire.RCWriteOnly, 5)).Flow
	id := gone.ID
	r.drop(gone)
	list := r.List(r.now)
	if len(list) != 5 || r.Flow(id) != nil || r.Flow(uint32(len(r.flows))) != nil || r.Flow(1<<31) != nil {
		t.Errorf("%d flows: %+v", len(list), list)
	}
	for _, c := range []struct {
		flow *Flow
		how  string
		peer int
	}{
		{learnt, "packets", int(learnt.Peer.ID)},
		{learnt.Peer, "packets", int(learnt.ID)},
		{named, "cm", int(named.Peer.ID)},
		{named.Peer, "cm", int(named.ID)},
		{alone, "", -1},
	} {
		i := slices.IndexFunc(list, func(i Info) bool { return i.ID == c.flow.ID })
		if i < 0 || list[i].How != c.how || list[i].Peer != c.peer || r.Flow(c.flow.ID) != c.flow {
			t.Errorf("flow %d: %+v", c.flow.ID, list)
		}
	}
	for f, want := range map[*wire.Frame]*Flow{
		packet(1, 2, 0x22, wire.RCWriteOnly, 1): learnt, packet(3, 2, 0x24, wire.RCWriteOnly, 1): nil, packet(9, 2, 0x24, wire.RCWriteOnly, 1): nil,
	} {
		if got := r.Known(f); got != want {
			t.Errorf("%+v is known: %+v", f.BTH, got)
		}
	}
	learnt.Pinned = true
	if n := r.Clearable(); n != 3 {
		t.Errorf("%d flows can be cleared", n)
	}
	if n := r.Clear(); n != 3 || r.Clearable() != 0 || r.Flow(learnt.ID) != learnt || len(r.List(r.now)) != 2 {
		t.Errorf("%d flows cleared, %d left", n, len(r.List(r.now)))
	}
	// From now on, what the table sees may be older than what it knows.
	if fl := r.ask(packet(3, 2, 0x24, wire.RCWriteOnly, 5)).Flow; !fl.Middle || fl.learn.until <= r.now {
		t.Errorf("after clearing: %+v", fl.Sequence)
	}
}

// A number of a flow is never 0, also after the last.
func TestNumbersOfFlows(t *testing.T) {
	r := newRig(t, nil)
	r.serial = 1<<32 - 2
	for i, want := range []uint32{1<<32 - 1, 1, 2} {
		if fl := r.ask(packet(1, 2, wire.QPN(0x20+i), wire.RCWriteOnly, 5)).Flow; fl.Generation != want {
			t.Errorf("flow %d has the number %d, want %d", i, fl.Generation, want)
		}
	}
}

// A damaged packet is counted where the table would have learnt from it, and changes nothing.
func TestDamagedPacketsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rig)
		f      *wire.Frame
		bad    Reason
	}{
		"of a new flow":           {func(*rig) {}, packet(1, 2, 0x22, wire.RCWriteOnly, 5), Corrupt},
		"response without a peer": {func(r *rig) { r.see(packet(2, 1, 0x11, wire.RCWriteOnly, 5)) }, packet(2, 1, 0x11, wire.RCAck, 5), Corrupt},
		"request ahead":           {func(r *rig) { r.learn(1, 2, 0x11, 0x22, 100) }, packet(1, 2, 0x22, wire.RCWriteOnly, 104), Corrupt},
		"request in order":        {func(r *rig) { r.learn(1, 2, 0x11, 0x22, 100) }, packet(1, 2, 0x22, wire.RCWriteOnly, 103), Fine},
	} {
		r := newRig(t, nil)
		c.before(r)
		flows := r.Stats().Flows
		r.bad = true
		s := r.see(c.f)
		if st := r.Stats(); s.Bad != c.bad || (st.Damaged == 1) != (c.bad == Corrupt) || st.Flows != flows || s.Response != c.f.BTH.Opcode.Is(wire.OpResponse) {
			t.Errorf("%s: %+v, %+v", name, s, st)
		}
	}
}

// A connection that has ended refuses its packets until the end of the quarantine, is closed once
// for each direction, and makes room for another one.
func TestEndsOfConnections(t *testing.T) {
	closed := 0
	r := newRig(t, func(c *Config) { c.Connections, c.OnClose = 1, func(*Flow) { closed++ } })
	toB := r.connectAs(0xa1, 0xb1, 0x11, 0x22)
	r.see(datagram(1, 2, &mad.RTU{LocalID: 0xa1, RemoteID: 0xb1}))
	// No other connection has room.
	if s := r.see(packet(5, 2, 0x99, wire.RCWriteOnly, 1)); s.Bad != NoRoom || s.Flow != nil || r.Stats().NoRoom != 1 {
		t.Errorf("%+v, %+v", s, r.Stats())
	}
	r.see(datagram(3, 2, reqFrom(3, 2, 0xa7, 0x31, 1)))
	r.see(datagram(2, 3, &mad.REP{LocalID: 0xb7, RemoteID: 0xa7, QPN: 0x41, PSN: 1}))
	if st := r.Stats(); st.NoRoom != 2 || st.Strays != 1 || st.Flows != 2 {
		t.Errorf("%+v", st)
	}
	r.see(datagram(1, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x22}))
	r.see(datagram(2, 1, &mad.DREP{LocalID: 0xb1, RemoteID: 0xa1}))
	if st := r.Stats(); toB.State != Closed || closed != 2 || st.Ended != 1 || st.Closed != 2 {
		t.Errorf("%v, %d closed, %+v", toB.State, closed, st)
	}
	for n := range uint64(3) {
		if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, 901)); s.Bad != Quarantined || s.Flow != toB || r.Stats().Quarantined != n+1 {
			t.Errorf("%+v, %+v", s, r.Stats())
		}
	}
	toB.Pinned, toB.Peer.Pinned = true, true
	if s := r.see(packet(5, 2, 0x99, wire.RCWriteOnly, 1)); s.Bad != NoRoom {
		t.Errorf("beside pinned flows: %+v", s)
	}
	toB.Pinned, toB.Peer.Pinned = false, false
	if s := r.see(packet(5, 2, 0x99, wire.RCWriteOnly, 1)); s.Bad != Fine || s.Flow == nil || r.Stats().Flows != 1 || r.Stats().Closed != 0 || closed != 2 {
		t.Errorf("%+v, %+v, %d closed", s, r.Stats(), closed)
	}
}

// Flows are forgotten, ended or released at their time, not before.
func TestTimesOfFlows(t *testing.T) {
	for name, c := range map[string]struct {
		state State
		after time.Duration
		check func(r *rig, fl *Flow) bool
	}{
		"idle":       {Open, 10 * time.Minute, func(r *rig, fl *Flow) bool { return fl.Generation == 0 && r.Stats().Idled == 1 }},
		"closing":    {Closing, 30 * time.Second, func(_ *rig, fl *Flow) bool { return fl.State == Closed }},
		"quarantine": {Closed, 30 * time.Second, func(_ *rig, fl *Flow) bool { return fl.Generation == 0 }},
	} {
		for _, more := range []time.Duration{-1, 0} {
			r := newRig(t, nil)
			fl := r.connectAs(0xa1, 0xb1, 0x11, 0x22)
			switch c.state {
			case Closed:
				r.end(r.now, fl)
			default:
				fl.State, fl.Peer.State = c.state, c.state
			}
			last := max(fl.Last, fl.Peer.Last)
			if c.state == Closed {
				last = r.now
			}
			if r.age(last.Add(c.after+more), fl); c.check(r, fl) != (more == 0) {
				t.Errorf("%s, after %v%+d ns: %v, %+v", name, c.after, more, fl.State, r.Stats())
			}
		}
	}
	// One direction that goes on keeps the other.
	r := newRig(t, nil)
	fl := r.connectAs(0xa1, 0xb1, 0x11, 0x22)
	fl.Peer.Last = fl.Last.Add(5 * time.Minute)
	if r.age(fl.Last.Add(10*time.Minute), fl); fl.Generation == 0 {
		t.Error("a flow whose peer goes on is forgotten")
	}
}

// A queue pair is taken for reused from a PSN on that is 4096 ahead, and when both directions have
// been silent for as long as the quarantine.
func TestBoundsOfReuse(t *testing.T) {
	for _, c := range []struct {
		ahead  int
		silent time.Duration
		want   bool
	}{
		{0, time.Minute, false},
		{nearby - 1, time.Minute, false},
		{nearby, time.Minute, true},
		{-1, time.Minute, true},
		{nearby, 30 * time.Second, true},
		{nearby, 30*time.Second - 1, false},
	} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		flow.Last = flow.Peer.Last
		f := packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected.Add(c.ahead))
		if r.Packet(flow.Last.Add(c.silent), 1, f, r); (r.Stats().Reused == 1) != c.want {
			t.Errorf("%d ahead after %v: %+v", c.ahead, c.silent, r.Stats())
		}
	}
}

// When a host is gone, its connections end, its learning flows are forgotten, and those of other
// hosts stay.
func TestForgottenHosts(t *testing.T) {
	r := newRig(t, nil)
	mine, theirs := r.learn(1, 2, 0x11, 0x22, 100), r.learn(3, 4, 0x11, 0x22, 100)
	r.ask(packet(1, 4, 0x99, wire.RCWriteOnly, 5))
	r.ask(packet(3, 1, 0x98, wire.RCWriteOnly, 5))
	r.ask(packet(3, 2, 0x97, wire.RCWriteOnly, 5))
	for range 2 {
		r.forget(r.now, addr(1))
		if mine.State != Closed || mine.Peer.State != Closed || theirs.State != Open || theirs.Peer.State != Open {
			t.Errorf("%v, %v", mine.State, theirs.State)
		}
		if r.flow(1, 4, 0x99) != nil || r.flow(3, 1, 0x98) != nil || r.flow(3, 2, 0x97) == nil || r.Stats().Ended != 1 || r.Stats().Learning != 1 {
			t.Errorf("%+v", r.Stats())
		}
	}
}

// A host that needs another learning flow loses the one that has been silent longest.
func TestOldestLearningFlowGoes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Learning = 6 })
	for _, qpn := range []wire.QPN{0x21, 0x22, 0x23} {
		r.ask(packet(1, 2, qpn, wire.RCWriteOnly, 5))
	}
	r.ask(packet(1, 2, 0x21, wire.RCWriteOnly, 6))
	r.ask(packet(1, 2, 0x24, wire.RCWriteOnly, 5))
	for qpn, want := range map[wire.QPN]bool{0x21: true, 0x22: false, 0x23: true, 0x24: true} {
		if (r.flow(1, 2, qpn) != nil) != want {
			t.Errorf("flow to %#x is there: %v", uint32(qpn), !want)
		}
	}
	// When all together have too many, the host with the most loses one, and no new host another's.
	r = newRig(t, func(c *Config) { c.Learning = 6 })
	for i, host := range []int{1, 1, 1, 3, 3, 4} {
		r.ask(packet(host, 2, wire.QPN(0x20+i), wire.RCWriteOnly, 5))
	}
	r.ask(packet(5, 2, 0x99, wire.RCWriteOnly, 5))
	if r.flow(1, 2, 0x20) != nil || r.flow(1, 2, 0x21) == nil || r.flow(5, 2, 0x99) == nil || r.Stats().Evicted != 1 || r.Stats().Learning != 6 {
		t.Errorf("%+v", r.Stats())
	}
	r.ask(packet(4, 2, 0x98, wire.RCWriteOnly, 5))
	if r.flow(4, 2, 0x25) != nil || r.flow(4, 2, 0x98) == nil || r.Stats().Evicted != 2 {
		t.Errorf("%+v", r.Stats())
	}
	// The table may have missed requests of the host that has lost a flow.
	if s := r.ask(packet(4, 2, 0x97, wire.RCWriteOnly, 5)); !s.Flow.Middle {
		t.Errorf("%+v", s.Flow.Sequence)
	}
	if s := r.ask(packet(6, 2, 0x96, wire.RCWriteOnly, 5)); s.Flow.Middle {
		t.Errorf("%+v", s.Flow.Sequence)
	}
}

// A connection over IPv6 is known from its handshake.
func TestAnnouncedOverIPv6(t *testing.T) {
	r := newRig(t, nil)
	six := func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}) }
	over6 := func(f *wire.Frame, a, b int) *wire.Frame {
		f.V6, f.IPv6.Src, f.IPv6.Dst = true, six(a).As16(), six(b).As16()
		return f
	}
	req := reqFrom(1, 2, 0xa1, 0x11, 500)
	req.Primary = mad.Path{LocalGID: six(1).As16(), RemoteGID: six(2).As16()}
	r.see(over6(datagram(1, 2, req), 1, 2))
	r.see(over6(datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x22, PSN: 900}), 2, 1))
	s := r.ask(over6(packet(1, 2, 0x22, wire.RCWriteOnly, 900), 1, 2))
	if s.Flow == nil || s.Class != New || !s.Alone || s.Flow.Requester != six(1) || s.Flow.Responder != six(2) || s.Flow.ReqQPN != 0x11 || s.Flow.State != Open {
		t.Errorf("%+v", s)
	}
	if x := r.see(over6(packet(2, 1, 0x11, wire.RCAck, 900), 2, 1)); x.Flow != s.Flow || x.Bad != Fine {
		t.Errorf("%+v", x)
	}
	if x := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, 900)); x.Flow == s.Flow {
		t.Error("an IPv4 packet belongs to it")
	}
}

// What is learnt from packets is counted, also that nothing is learnt: a response that no request
// explains, one that contradicts all, and one for which there is no time.
func TestLearningIsCounted(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	if st := r.Stats(); st.Paired != 1 {
		t.Errorf("%+v", st)
	}
	if s := r.see(packet(2, 1, 0x11, wire.RCAck, flow.Expected.Add(50))); s.Bad != Implausible || r.Stats().Implausible != 1 {
		t.Errorf("%+v, %+v", s, r.Stats())
	}
	r = newRig(t, nil)
	r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 5))
	r.ask(packet(2, 1, 0x11, wire.RCWriteOnly, 5))
	left := r.learner.budget.left
	if r.see(packet(2, 1, 0x11, wire.RCAck, 5)); r.learner.budget.left >= left+1 || r.learner.budget.left > budgetBurst {
		t.Errorf("%d comparisons are left, before %d", r.learner.budget.left, left)
	}
	r.learner.budget = budget{at: r.now.Add(time.Second)}
	if s := r.see(packet(2, 1, 0x11, wire.RCAck, 5)); s.Bad != Unknown || r.Stats().Unhurried != 1 {
		t.Errorf("%+v, %+v", s, r.Stats())
	}
	r.learner.budget = budget{left: 3, at: r.now.Add(time.Second)}
	if r.see(packet(2, 1, 0x11, wire.RCAck, 5)); r.learner.budget.left != 2 {
		t.Errorf("%d comparisons are left", r.learner.budget.left)
	}
	// A response to what the only candidate has not asked excludes it; the next one starts over.
	r = newRig(t, nil)
	r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 5))
	r.ask(packet(2, 1, 0x11, wire.RCWriteOnly, 5))
	r.see(packet(2, 1, 0x11, wire.RCAtomicAck, 5))
	r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 6))
	for _, want := range []uint64{1, 1, 1} {
		r.see(packet(2, 1, 0x11, wire.RCAck, 5))
		if n := r.Stats().Contradicted; n != want {
			t.Errorf("%d contradictions, want %d", n, want)
		}
	}
}

// After a burst the flow is as active as after its packets one by one.
func TestBurstsKeepFlowsActive(t *testing.T) {
	const size = 1040
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	flow.learnMTU(1024)
	f := packet(1, 2, 0x22, wire.RCWriteMiddle, flow.Expected)
	b := burst(f, size, wire.RCWriteMiddle, wire.RCWriteMiddle, wire.RCWriteLast)
	r.now += 1000
	flow.HasAcked, flow.seen = false, oneRequest
	if r.Burst(r.now, 1, f, b, size) != flow || flow.Last != r.now || flow.First() {
		t.Errorf("last packet at %v of %v, %+v", flow.Last, r.now, flow.Sequence)
	}
	if r.Burst(r.now, 1, f, append(b[:2*size], 1), size) != nil {
		t.Error("a packet of one byte was taken")
	}
	back := packet(2, 1, 0x11, wire.RCReadResponseMiddle, 103)
	answer := burst(back, size, wire.RCReadResponseMiddle, wire.RCReadResponseMiddle)
	r.now += 1000
	if r.Burst(r.now, 2, back, answer, size) != flow || flow.Peer.Last != r.now || flow.Acked != 104 {
		t.Errorf("last packet at %v of %v, acknowledged %d", flow.Peer.Last, r.now, flow.Acked)
	}
	for name, change := range map[string]func(f *wire.Frame){
		"the MTU is not known":   func(*wire.Frame) { flow.PathMTU.MTU = 0 },
		"behind the requests":    func(f *wire.Frame) { f.BTH.PSN = 106 },
		"at the last request":    func(f *wire.Frame) { f.BTH.PSN = 105 },
		"the PSN is not known":   func(*wire.Frame) { flow.sync = unsynced },
		"the flow is not active": func(*wire.Frame) { flow.Peer.Last = r.now.Add(-rarely) },
	} {
		before, peer := *flow, *flow.Peer
		g := *back
		change(&g)
		if r.Burst(r.now, 2, &g, burst(&g, size, wire.RCReadResponseMiddle, wire.RCReadResponseMiddle), size) != nil {
			t.Errorf("%s: a burst of responses was taken", name)
		}
		*flow, *flow.Peer = before, peer
	}
	// Without an MTU, messages of one packet are taken, and parts of messages are not.
	flow.PathMTU.MTU, r.now = 0, r.now+1
	for op, want := range map[wire.Opcode]bool{wire.RCSendOnly: true, wire.RCWriteOnly: true, wire.RCWriteMiddle: false, wire.RCSendFirst: false, wire.RCWriteLast: true} {
		f := packet(1, 2, 0x22, op, flow.Expected)
		if got := r.Burst(r.now, 1, f, burst(f, size, op, op), size) != nil; got != want {
			t.Errorf("%v without an MTU is taken: %v", op, got)
		}
	}
}

// Flows are checked for silence once a second, and Deadline says when.
func TestSweeps(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Idle = 3 * time.Second })
	if r.Deadline() != clock.Never {
		t.Errorf("an empty table waits until %v", r.Deadline())
	}
	r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 5))
	begin := r.now
	for _, want := range []time.Duration{1, 2, 3} {
		at := r.Deadline()
		if at != begin.Add(want*time.Second) {
			t.Errorf("deadline %v after the packet, want %v s", at.Sub(begin), want)
		}
		if r.Tick(at - 1); r.Deadline() != at || r.Stats().Flows != 1 {
			t.Errorf("a Tick before the deadline does something: %v", r.Deadline())
		}
		r.Tick(at)
	}
	if r.Stats().Flows != 0 || r.Stats().Idled != 1 || r.Deadline() != clock.Never {
		t.Errorf("%+v, deadline %v", r.Stats(), r.Deadline())
	}
}
