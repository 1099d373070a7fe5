package conntrack

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// datagram returns a message of the connection manager from host a to host b.
func datagram(a, b int, m mad.Message) *wire.Frame {
	f := packet(a, b, gsi, wire.UDSendOnly, 0)
	f.Payload = mad.Append(nil, 1, m)
	return f
}

func reqFrom(a, b int, id mad.CommID, qpn wire.QPN, psn wire.PSN) *mad.REQ {
	return &mad.REQ{
		LocalID: id, QPN: qpn, PSN: psn, MTU: 4,
		Primary: mad.Path{LocalGID: addr(a).As16(), RemoteGID: addr(b).As16()},
	}
}

// connect announces a connection of host 1's queue pair 0x11 with host 2's 0x22.
func (r *rig) connect() (toB, toA *Flow) {
	r.t.Helper()
	r.see(datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 500)))
	r.see(datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x22, PSN: 900}))
	toB, toA = r.flow(1, 2, 0x22), r.flow(2, 1, 0x11)
	if toB == nil || toA == nil || toB.Peer != toA || toA.Peer != toB || toB.State != Connecting || toA.State != Connecting {
		r.t.Fatalf("after REQ and REP: %+v, %+v", toB, toA)
	}
	return toB, toA
}

// The table learns nothing from a damaged PSN, of the first request of a flow or of a later one,
// about which responses are plausible.
func TestDamagedPSN(t *testing.T) {
	r := newRig(t, nil)
	flow, _ := r.connect()
	for i := range wire.PSN(3) {
		r.bad = true
		for _, bit := range []wire.PSN{1 << 23, 1 << 22, 1 << 13} {
			if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, (900+i)^bit)); s.Flow != flow || s.Class == New {
				t.Errorf("damaged: %+v", s)
			}
		}
		r.bad = false
		if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 900+i)); s.Class != New || !s.Alone {
			t.Errorf("request %d: %+v", i, s)
		}
		if s := r.see(packet(2, 1, 0x11, wire.RCAck, 900+i)); s.Bad != Fine {
			t.Errorf("answer %d: %+v", i, s)
		}
	}
}

// The datagrams of a connection from REQ to DREP, each of them twice.
func TestAnnounced(t *testing.T) {
	r := newRig(t, nil)
	toB, toA := r.connect()
	if toB.Expected != 900 || toA.Expected != 500 || !toB.Synced() || !toA.Synced() || toB.PathMTU.MTU != 2048 || toB.ReqQPN != 0x11 || toA.ReqQPN != 0x22 {
		t.Errorf("%+v, %+v", toB, toA)
	}
	gen := toB.Generation
	r.see(datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 500)))
	r.see(datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x22, PSN: 900}))
	if r.flow(1, 2, 0x22) != toB || toB.Generation != gen || r.Stats().Announced != 1 {
		t.Error("a retransmission created new flows")
	}
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 900)); s.Class != New || !s.Alone || toB.State != Open || toA.State != Open {
		t.Errorf("the first request: %+v, %v", s, toB.State)
	}
	toA.State = Connecting
	r.see(datagram(1, 2, &mad.RTU{LocalID: 0xa1, RemoteID: 0xb1}))
	if toA.State != Open {
		t.Errorf("after RTU: %v", toA.State)
	}
	r.see(datagram(1, 2, &mad.REJ{LocalID: 0xa1, RemoteID: 0xb1, Reason: mad.ReasonStale}))
	if toB.State != Open {
		t.Error("a REJ ended an open connection")
	}
	for range 2 {
		r.see(datagram(2, 1, &mad.DREQ{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x11}))
		if toB.State != Closing || toA.State != Closing {
			t.Errorf("after DREQ: %v, %v", toB.State, toA.State)
		}
	}
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 901)); s.Class != New {
		t.Errorf("between DREQ and DREP: %+v", s)
	}
	for range 2 {
		r.see(datagram(1, 2, &mad.DREP{LocalID: 0xa1, RemoteID: 0xb1}))
		if toB.State != Closed || toA.State != Closed {
			t.Errorf("after DREP: %v, %v", toB.State, toA.State)
		}
	}
	if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, 901)); s.Bad != Quarantined || s.Flow != toB {
		t.Errorf("after the end: %+v", s)
	}
	// The same queue pairs, announced again at once, are another connection.
	toB, _ = r.connect()
	if toB.Generation == gen || toB.Expected != 900 {
		t.Errorf("%+v", toB)
	}
	if len(r.setups.asked) != 0 || len(r.setups.known) != 2 {
		t.Errorf("%d asked, %d known", len(r.setups.asked), len(r.setups.known))
	}
}

// Quarantine ends by time, and the flows are gone.
func TestQuarantineEnds(t *testing.T) {
	r := newRig(t, nil)
	r.connect()
	r.see(datagram(1, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x22}))
	r.see(datagram(2, 1, &mad.DREP{LocalID: 0xb1, RemoteID: 0xa1}))
	for end := r.now.Add(r.cfg.Quarantine + 2*time.Second); r.now < end; r.now = r.now.Add(time.Second) {
		if r.flow(1, 2, 0x22) == nil {
			t.Fatal("gone early")
		}
		if r.now > end.Add(-2*time.Second) {
			r.Tick(r.now)
		}
	}
	if st := r.Stats(); st.Flows != 0 || r.Deadline() > r.now.Add(time.Hour) && len(r.setups.asked) != 0 {
		t.Errorf("%+v", st)
	}
}

// Invalid messages are counted and change nothing: messages about no connection, of a third party,
// with a wrong number, of another service type, or about other addresses than their own.
func TestStrayDatagrams(t *testing.T) {
	r := newRig(t, nil)
	toB, toA := r.connect()
	r.see(datagram(1, 2, &mad.RTU{LocalID: 0xa1, RemoteID: 0xb1}))
	uc := reqFrom(1, 2, 0xa2, 0x12, 1)
	uc.Type = 1
	foreign := reqFrom(4, 2, 0xa3, 0x13, 1)
	small := reqFrom(1, 2, 0xa4, 0x14, 1)
	small.MTU = 0
	special := reqFrom(1, 2, 0xa4, 1, 1)
	strays := []*wire.Frame{
		datagram(1, 2, uc), datagram(1, 2, foreign), datagram(1, 2, small), datagram(1, 2, special),
		datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x99, PSN: 1}),
		datagram(3, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x99, PSN: 1}),
		datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0x77, QPN: 0x99, PSN: 1}),
		datagram(3, 2, &mad.RTU{LocalID: 0xa1, RemoteID: 0xb1}),
		datagram(3, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x22}),
		datagram(3, 1, &mad.DREQ{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x11}),
		datagram(1, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x23}),
		datagram(1, 2, &mad.DREQ{LocalID: 0xa9, RemoteID: 0x99, QPN: 0x22}),
		datagram(1, 2, &mad.DREP{LocalID: 0xa1, RemoteID: 0xb1}),
		datagram(1, 2, &mad.REJ{LocalID: 0xa9}),
	}
	for i, f := range strays {
		r.see(f)
		if st := r.Stats(); st.Strays != uint64(i+1) || toB.State != Open || toA.State != Open || st.Flows != 2 {
			t.Fatalf("stray %d: %+v, %v", i, st, toB.State)
		}
	}
	forged := datagram(1, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x22})
	if r.Packet(r.now, 3, forged, r); toB.State != Open || r.Stats().Spoofed != 1 {
		t.Errorf("a DREQ from another port: %v, %+v", toB.State, r.Stats())
	}
	r.bad = true
	if r.see(forged); toB.State != Open || r.Stats().Damaged != 1 {
		t.Errorf("a damaged DREQ: %v, %+v", toB.State, r.Stats())
	}
	r.bad = false
	for _, n := range []int{0, 23, 24, 255} {
		f := packet(1, 2, gsi, wire.UDSendOnly, 0)
		f.Payload = mad.Append(nil, 1, &mad.DREQ{})[:n]
		r.see(f)
	}
	if r.see(datagram(1, 2, &mad.MRA{})); r.Stats().Strays != uint64(len(strays)) {
		t.Error("an MRA is no stray")
	}
}

// Unanswered REQs are bounded and expire.
func TestUnansweredRequests(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Connections = 16 })
	for i := range 100 {
		r.see(datagram(1, 2, reqFrom(1, 2, mad.CommID(i+1), wire.QPN(0x100+i), 1)))
	}
	if len(r.setups.asked) != 16 || r.hosts.byAddr[addr(1)].setups != 16 {
		t.Errorf("%d wait", len(r.setups.asked))
	}
	// A REJ from either side frees a place.
	r.see(datagram(2, 1, &mad.REJ{RemoteID: 1}))
	r.see(datagram(1, 2, &mad.REJ{LocalID: 2}))
	if len(r.setups.asked) != 14 || r.hosts.byAddr[addr(1)].setups != 14 {
		t.Errorf("%d wait after refusals", len(r.setups.asked))
	}
	r.now = r.now.Add(setupTime + sweepEvery)
	r.Tick(r.now)
	if len(r.setups.asked) != 0 || r.hosts.byAddr[addr(1)].setups != 0 || r.Deadline() != clock.Never {
		t.Errorf("%d wait, deadline %v", len(r.setups.asked), r.Deadline())
	}
}

// A restarted host uses communication IDs and queue pairs again: the old connection ends when the
// new one has been answered, and not before.
func TestReusedIDs(t *testing.T) {
	var closed int
	r := newRig(t, func(c *Config) { c.OnClose = func(*Flow) { closed++ } })
	toB, _ := r.connect()
	toB.Pinned, toB.Ext = true, "state"
	gen := toB.Generation
	r.see(datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 77)))
	if toB.Generation != gen || closed != 0 {
		t.Error("a REQ alone ended the old connection")
	}
	r.see(datagram(2, 1, &mad.REP{LocalID: 0xb7, RemoteID: 0xa1, QPN: 0x33, PSN: 5}))
	if r.flow(1, 2, 0x22) != nil || closed != 2 {
		t.Errorf("the old connection: %+v, %d closed", r.flow(1, 2, 0x22), closed)
	}
	if flow := r.flow(1, 2, 0x33); flow == nil || flow.ReqQPN != 0x11 || flow.Pinned || flow.Ext != nil || flow.Expected != 5 {
		t.Errorf("the new one: %+v", flow)
	}
	// A connection is learnt from packets; then one with the same queue pair of the server is
	// announced.
	r.learn(4, 2, 0x44, 0x55, 9)
	r.see(datagram(4, 2, reqFrom(4, 2, 0xa1, 0x45, 1)))
	r.see(datagram(2, 4, &mad.REP{LocalID: 0xb8, RemoteID: 0xa1, QPN: 0x55, PSN: 6}))
	if flow := r.flow(4, 2, 0x55); flow.ReqQPN != 0x45 || r.flow(2, 4, 0x44) != nil {
		t.Errorf("%+v", flow)
	}
	if got := len(r.paired()); got != 4 || len(r.setups.known) != 4 || r.used != 4 {
		t.Errorf("%v, %d setups, %d flows", r.paired(), len(r.setups.known), r.used)
	}
}

// end is a host with a connection manager, for TestManagers.
type end struct {
	host int
	m    *cm.Machine
	out  cm.Actions
	qpn  map[mad.CommID]wire.QPN
	peer map[mad.CommID]wire.QPN
	open map[mad.CommID]bool
	next wire.QPN
}

// Two real connection managers make and end connections over links that lose, duplicate and delay
// datagrams on both sides of the switch. Whenever one of them may send on a connection, the table
// knows the connection correctly; and a connection that both have ended is not open.
func TestManagers(t *testing.T) {
	for seed := range uint64(60) {
		w := newManagers(t, seed)
		for range 400 {
			w.step()
		}
		if w.announced == 0 {
			t.Errorf("seed %d: nothing was announced", seed)
		}
	}
}

type managers struct {
	*rig
	seed      uint64
	rnd       *rand.Rand
	ends      [2]*end
	flight    []flight
	announced int
}

type flight struct {
	at    clock.Time
	f     *wire.Frame
	final bool // the frame has crossed the switch
}

func newManagers(t *testing.T, seed uint64) *managers {
	w := &managers{rig: newRig(t, nil), seed: seed, rnd: rand.New(rand.NewPCG(seed, 8))}
	for i := range w.ends {
		m, err := cm.New(cm.Config{Rand: rand.New(rand.NewPCG(seed, uint64(i))), MaxRetries: 15})
		if err != nil {
			t.Fatal(err)
		}
		e := &end{host: i + 1, m: m, qpn: map[mad.CommID]wire.QPN{}, peer: map[mad.CommID]wire.QPN{}, open: map[mad.CommID]bool{}, next: wire.QPN(0x100 * (i + 1))}
		if err := m.Listen(7, netip.Prefix{}, 1); err != nil {
			t.Fatal(err)
		}
		w.ends[i] = e
	}
	return w
}

// step makes an application connect or disconnect, or time pass.
func (w *managers) step() {
	e := w.ends[w.rnd.IntN(2)]
	other := w.ends[2-e.host]
	switch w.rnd.IntN(8) {
	case 0:
		e.next++
		req := mad.REQ{Service: 7, QPN: e.next, PSN: wire.PSN(w.rnd.IntN(1 << 24)), MTU: 3}
		if id, err := e.m.Connect(w.now, 1, addr(e.host), addr(other.host), req, &e.out); err == nil {
			e.qpn[id] = e.next
		}
	case 1:
		if ids := slices.Sorted(maps.Keys(e.open)); len(ids) > 0 {
			_ = e.m.Disconnect(w.now, ids[w.rnd.IntN(len(ids))], &e.out)
		}
	default:
		w.now = w.now.Add(time.Duration(w.rnd.IntN(40)) * time.Millisecond)
		e.m.Tick(w.now, &e.out)
		w.Tick(w.now)
	}
	w.flush(e)
	slices.SortStableFunc(w.flight, func(a, b flight) int { return int(a.at - b.at) })
	for len(w.flight) > 0 && w.flight[0].at <= w.now {
		f := w.flight[0]
		w.flight = w.flight[1:]
		if !f.final {
			w.see(f.f)
			w.send(f.f, true)
			continue
		}
		to := w.ends[f.f.IPv4.Dst[3]-1]
		to.m.Handle(w.now, cm.Way{Local: f.f.DstAddr(), Peer: f.f.SrcAddr(), PKey: f.f.BTH.PKey}, f.f.Payload, &to.out)
		w.flush(to)
	}
}

// send puts a frame on a link.
func (w *managers) send(f *wire.Frame, final bool) {
	copies := []int{0, 1, 1, 1, 1, 2}[w.rnd.IntN(6)]
	for range copies {
		w.flight = append(w.flight, flight{w.now.Add(time.Duration(w.rnd.IntN(30)) * time.Millisecond), f, final})
	}
}

// flush executes the actions of a machine.
func (w *managers) flush(e *end) {
	for len(e.out.Tx)+len(e.out.Events) > 0 {
		tx, events := slices.Clone(e.out.Tx), slices.Clone(e.out.Events)
		e.out.Reset()
		for i := range tx {
			f := packet(e.host, 3-e.host, gsi, wire.UDSendOnly, 0)
			f.Payload = tx[i].MAD[:]
			w.send(f, false)
		}
		for _, ev := range events {
			w.event(e, ev)
		}
	}
}

func (w *managers) event(e *end, ev cm.Event) {
	switch m := ev.Message.(type) {
	case *mad.REQ:
		if w.rnd.IntN(6) == 0 {
			_ = e.m.Reject(w.now, ev.Conn, cm.Refusal{}, &e.out)
			return
		}
		e.next++
		e.qpn[ev.Conn], e.peer[ev.Conn] = e.next, m.QPN
		_ = e.m.Accept(w.now, ev.Conn, mad.REP{QPN: e.next, PSN: wire.PSN(w.rnd.IntN(1 << 24))}, &e.out)
		return
	case *mad.REP:
		e.peer[ev.Conn] = m.QPN
		_ = e.m.Ready(ev.Conn, &e.out)
		// From now on the end may send, so the table must know the connection.
		flow := w.flow(e.host, 3-e.host, m.QPN)
		if flow == nil || flow.Peer == nil || flow.ReqQPN != e.qpn[ev.Conn] || !flow.Synced() || flow.Expected != m.PSN || flow.PathMTU.MTU != 1024 {
			w.t.Fatalf("seed %d: %d:%#x may send to %#x from PSN %d, and the flow is %+v", w.seed, e.host, e.qpn[ev.Conn], m.QPN, m.PSN, flow)
		}
		w.announced++
		e.open[ev.Conn] = true
		return
	}
	switch ev.Kind {
	case cm.EventEstablished:
		flow := w.flow(e.host, 3-e.host, e.peer[ev.Conn])
		if flow == nil || flow.ReqQPN != e.qpn[ev.Conn] || flow.State != Open && flow.State != Closing {
			w.t.Fatalf("seed %d: established, and the flow is %+v", w.seed, flow)
		}
		e.open[ev.Conn] = true
	case cm.EventDisconnected, cm.EventUnanswered, cm.EventClosed, cm.EventRejected, cm.EventUnreachable:
		delete(e.open, ev.Conn)
		if flow := w.flow(e.host, 3-e.host, e.peer[ev.Conn]); (ev.Kind == cm.EventDisconnected || ev.Kind == cm.EventUnanswered) && flow != nil && flow.State == Open && flow.ReqQPN == e.qpn[ev.Conn] {
			w.t.Fatalf("seed %d: disconnected, and the flow is %+v", w.seed, flow)
		}
	}
}

func reject(local, remote mad.CommID) *mad.REJ {
	return &mad.REJ{LocalID: local, RemoteID: remote, Reason: mad.ReasonConsumer}
}

// A connection that is older than the table has no communication IDs; a DREQ of one of its ends
// names the queue pair of the other.
func TestUnnamedConnectionIsEnded(t *testing.T) {
	for name, f := range map[string]*wire.Frame{
		"by the server": datagram(2, 1, &mad.DREQ{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x11}),
		"by the client": datagram(1, 2, &mad.DREQ{LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x22}),
	} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		for _, stray := range []*wire.Frame{
			datagram(2, 1, &mad.DREQ{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x12}), datagram(3, 1, &mad.DREQ{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x11}),
			datagram(1, 2, &mad.DREQ{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x11}),
		} {
			if r.see(stray); flow.State != Open || flow.Peer.State != Open {
				t.Fatalf("%s: a DREQ of another connection: %v, %v", name, flow.State, flow.Peer.State)
			}
		}
		if r.see(f); flow.State != Closing || flow.Peer.State != Closing {
			t.Errorf("%s: %v, %v", name, flow.State, flow.Peer.State)
		}
	}
}
