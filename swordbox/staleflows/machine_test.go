package staleflows

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

var (
	client, server       = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	clientMAC, serverMAC = wire.MAC{2, 1}, wire.MAC{2, 2}
	other                = netip.MustParseAddr("10.0.0.3")
)

// glue is a program that calls the Machine first.
type glue struct{ *Machine }

func (glue) Spec() pipeline.Spec { return pipeline.Spec{Name: "glue", Split: true} }

func (g glue) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	switch v, taken := g.Machine.Packet(c, p); {
	case taken && v != pipeline.Drop(ReasonFormer) && v != pipeline.Drop(ReasonBlocked):
		panic("the machine decides and drops nothing")
	case taken:
		return v
	}
	return pipeline.Forward()
}

type rig struct {
	*pipeline.Switch
	t   *testing.T
	m   *Machine
	rec *journal.Journal
	now clock.Time
	out packetio.Batch
}

// newRig returns a switch whose former incarnation has moved requests of the flow from client queue
// pair 0x11 to server queue pair 0x22, with oldest as the PSN of its oldest request.
func newRig(t *testing.T, oldest wire.PSN, cfg Config) *rig {
	t.Helper()
	b := make([]byte, journal.Size)
	former, err := journal.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := former.Move(journal.Flow{Client: client, Server: server, ClientQPN: 0x11, ServerQPN: 0x22, Oldest: 1})
	if err != nil {
		t.Fatal(err)
	}
	former.Answered(slot, oldest)
	r := &rig{t: t}
	if r.rec, err = journal.Open(b); err != nil {
		t.Fatal(err)
	}
	cfg.Journal = r.rec
	r.m = New(cfg)
	if r.Switch, err = pipeline.New(pipeline.Config{Ports: 2, Program: glue{r.m}}); err != nil {
		t.Fatal(err)
	}
	r.tick()
	return r
}

func (r *rig) tick() {
	if r.Deadline() <= r.now {
		r.Tick(r.now, &r.out)
	}
}

// send passes a frame from the client's port (0) or the server's (1) to the switch and returns the
// frames sent.
func (r *rig) send(port int, f wire.Frame) []wire.Frame {
	r.t.Helper()
	r.out.Reset()
	r.Frame(r.now, port, packetio.Frame{Data: f.AppendTo(nil)}, &r.out)
	var frames []wire.Frame
	for _, o := range r.out.Frames {
		var g wire.Frame
		if err := wire.ParseFrame(o.Data, &g); err != nil || !wire.CheckICRC(o.Data) {
			r.t.Fatalf("%v", err)
		}
		frames = append(frames, g)
	}
	return frames
}

func request(from netip.Addr, qpn wire.QPN, psn wire.PSN) wire.Frame {
	f := wire.Frame{Eth: wire.Ethernet{Src: clientMAC, Dst: serverMAC}, IPv4: wire.IPv4{TTL: 64, Src: from.As4(), Dst: server.As4()}}
	f.BTH = wire.BTH{Opcode: wire.RCWriteOnly, PKey: 0xffff, DestQP: qpn, PSN: psn}
	return f
}

func response(qpn wire.QPN) wire.Frame {
	f := wire.Frame{Eth: wire.Ethernet{Src: serverMAC, Dst: clientMAC}, IPv4: wire.IPv4{TTL: 64, Src: server.As4(), Dst: client.As4()}}
	f.BTH = wire.BTH{Opcode: wire.RCAck, PKey: 0xffff, DestQP: qpn, PSN: 7}
	return f
}

// Whichever request arrives first, the NAK has the PSN of the oldest one, so that it acknowledges
// no lost request.
func TestNAKOfTheOldest(t *testing.T) {
	for _, tc := range []struct{ oldest, psn, want wire.PSN }{
		{100, 100, 100},
		{100, 107, 100},         // a later request arrives first
		{100, 98, 98},           // an answer was recorded, and then lost
		{0xfffffe, 3, 0xfffffe}, // at the wrap of PSNs
		{2, 0xfffffe, 0xfffffe}, // the same, with a lost answer
		{0xffffff, 0xffffff, 0xffffff},
	} {
		r := newRig(t, tc.oldest, Config{})
		got := r.send(0, request(client, 0x22, tc.psn))
		if len(got) != 1 {
			t.Fatalf("%+v: %d frames", tc, len(got))
		}
		f := got[0]
		if f.BTH.Opcode != wire.RCAck || f.AETH.Syndrome != wire.NakRemoteOp || f.BTH.PSN != tc.want || f.BTH.DestQP != 0x11 || f.AETH.MSN != 0 || r.m.Stats() != (Stats{Former: 1, Naks: 1}) ||
			f.Eth.Dst != clientMAC || f.SrcAddr() != server || f.DstAddr() != client {
			t.Errorf("%+v: %v", tc, &f)
		}
		if n := r.Port(0).Drops[ReasonFormer]; n != 1 {
			t.Errorf("%d drops", n)
		}
	}
}

// No packet of the stale flow passes in either direction, and all other packets pass.
func TestWhatPasses(t *testing.T) {
	r := newRig(t, 5, Config{})
	damaged := request(client, 0x22, 5)
	b := damaged.AppendTo(nil)
	b[len(b)-1] ^= 1
	r.Frame(r.now, 0, packetio.Frame{Data: b}, &r.out)
	if len(r.out.Frames) != 0 || r.m.Stats().Naks != 0 {
		t.Error("a damaged request is answered or passes")
	}
	for name, tc := range map[string]struct {
		port int
		f    wire.Frame
		want wire.Opcode
	}{
		"answer":         {1, response(0x11), 0},
		"other answer":   {1, response(0x12), wire.RCAck},
		"other qpn":      {0, request(client, 0x23, 5), wire.RCWriteOnly},
		"another client": {0, request(other, 0x22, 5), wire.RCWriteOnly},
	} {
		got := r.send(tc.port, tc.f)
		if (len(got) == 1) != (tc.want != 0) || len(got) == 1 && got[0].BTH.Opcode != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// announce returns a datagram of the connection manager.
func announce(from netip.Addr, msg mad.Message) wire.Frame {
	f := request(from, 1, 0)
	f.BTH.Opcode = wire.UDSendOnly
	f.DETH = wire.DETH{QKey: 0x80010000, SrcQP: 1}
	f.Payload = mad.Append(nil, 1, msg)
	return f
}

// A flow is forgotten when one of its queue pairs is connected again, but not by a late copy of its
// own handshake.
func TestForgottenByNewConnection(t *testing.T) {
	for name, msg := range map[string]mad.Message{"client": &mad.REQ{LocalID: 1, QPN: 0x11}, "server": &mad.REP{LocalID: 1, QPN: 0x22}} {
		from := map[string]netip.Addr{"client": client, "server": server}[name]
		r := newRig(t, 5, Config{})
		if got := r.send(0, announce(from, msg)); len(got) != 1 || len(r.m.Flows()) != 1 {
			t.Errorf("%s: early copy: %d frames, %d flows", name, len(got), len(r.m.Flows()))
		}
		if got := r.send(0, request(client, 0x22, 5)); len(got) != 1 || got[0].BTH.Opcode != wire.RCAck {
			t.Errorf("%s: %v", name, got)
		}
		r.send(0, announce(other, msg)) // another host's queue pair of the same number
		damaged, connected := announce(from, msg), announce(from, msg)
		b := damaged.AppendTo(nil)
		b[len(b)-1] ^= 1
		r.Frame(r.now, 0, packetio.Frame{Data: b}, &r.out)
		connected.BTH.Opcode = wire.UCSendOnly
		r.send(0, connected)
		if len(r.m.Flows()) != 1 {
			t.Errorf("%s: a packet of another connection ended the flow", name)
		}
		r.send(0, announce(from, msg))
		if len(r.m.Flows()) != 0 || r.rec.Stats().Flows != 0 || r.m.Stats().Forgotten != 1 || r.Deadline() != clock.Never {
			t.Errorf("%s: the flow is still there", name)
		}
		if got := r.send(0, request(client, 0x22, 9)); len(got) != 1 || got[0].BTH.Opcode != wire.RCWriteOnly {
			t.Errorf("%s: the new connection: %v", name, got)
		}
	}
	// A client that has sent no request since, and makes a new connection later.
	r := newRig(t, 5, Config{})
	r.now = r.now.Add(2 * time.Second)
	r.send(0, announce(client, &mad.REQ{LocalID: 1, QPN: 0x11}))
	if len(r.m.Flows()) != 0 {
		t.Error("the flow is still there")
	}
}

func TestForgottenBySilence(t *testing.T) {
	r := newRig(t, 5, Config{Idle: time.Minute})
	r.now = r.now.Add(50 * time.Second)
	r.send(0, request(client, 0x22, 5))
	r.now = r.now.Add(50 * time.Second)
	r.tick()
	if len(r.m.Flows()) != 1 {
		t.Error("forgotten too early")
	}
	r.now = r.now.Add(11 * time.Second)
	r.tick()
	if len(r.m.Flows()) != 0 || r.rec.Stats().Flows != 0 {
		t.Error("not forgotten")
	}
}

// Connections that are made out of band may have the QPNs of a former one. They are not refused
// forever.
func TestReusedQPNs(t *testing.T) {
	r := newRig(t, 5, Config{})
	for i := range 40 {
		r.now = clock.Time(time.Second) * clock.Time(i)
		r.tick()
		f := r.send(0, request(client, 0x22, 500))
		if passed := len(f) == 1 && f[0].BTH.Opcode == wire.RCWriteOnly; passed != (i > 30) {
			t.Errorf("after %d s: passed %v", i, passed)
		}
	}
	if len(r.m.Flows()) != 0 {
		t.Errorf("flows left: %v", r.m.Flows())
	}
}

// Packets of the server to a queue pair that does not exist any more do not keep the flow.
func TestResponsesDoNotKeepAFlow(t *testing.T) {
	r := newRig(t, 5, Config{Idle: time.Minute})
	for i := range 70 {
		r.now = clock.Time(time.Second) * clock.Time(i)
		r.tick()
		if got := r.send(1, response(0x11)); (len(got) != 0) != (i >= 60) {
			t.Errorf("after %d s: %d frames", i, len(got))
		}
	}
}

// While former connections to a server are being ended no request reaches it; responses pass.
func TestBlocked(t *testing.T) {
	blocked := true
	r := newRig(t, 5, Config{Blocked: func(a netip.Addr) bool { return blocked && a == server }})
	if got := r.send(0, request(other, 0x99, 5)); len(got) != 0 || r.Port(0).Drops[ReasonBlocked] != 1 {
		t.Errorf("%v", got)
	}
	if got := r.send(1, response(0x99)); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if s := r.m.Stats(); s.Blocked != 1 {
		t.Errorf("%+v", s)
	}
	unreliable := request(other, 0x99, 5)
	unreliable.BTH.Opcode = wire.UCWriteOnly
	if got := r.send(0, unreliable); len(got) != 1 {
		t.Errorf("a request of another service: %v", got)
	}
	blocked = false
	if got := r.send(0, request(other, 0x99, 5)); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestNothingToDoCostsNothing(t *testing.T) {
	m := New(Config{})
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: glue{m}})
	if err != nil {
		t.Fatal(err)
	}
	f := request(client, 0x22, 5)
	b := f.AppendTo(nil)
	var out packetio.Batch
	n := testing.AllocsPerRun(100, func() {
		out.Reset()
		sw.Frame(0, 0, packetio.Frame{Data: b}, &out)
	})
	if n > 0 || m.Deadline() != clock.Never {
		t.Errorf("%v allocations, deadline %v", n, m.Deadline())
	}
}

// The end of one flow leaves the others refused, and its own packets pass in both directions. One
// refused request is enough for the end.
func TestTwoFlows(t *testing.T) {
	b := make([]byte, journal.Size)
	former, err := journal.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range wire.QPN(2) {
		if _, err := former.Move(journal.Flow{Client: client, Server: server, ClientQPN: 0x11 + i, ServerQPN: 0x22 + i}); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t}
	if r.rec, err = journal.Open(b); err != nil {
		t.Fatal(err)
	}
	r.m = New(Config{Journal: r.rec})
	if r.Switch, err = pipeline.New(pipeline.Config{Ports: 2, Program: glue{r.m}}); err != nil {
		t.Fatal(err)
	}
	if r.m.Empty() || !New(Config{}).Empty() || r.Deadline() != 0 {
		t.Errorf("deadline %v", r.Deadline())
	}
	r.send(0, request(client, 0x22, 5))
	r.now = r.now.Add(refuseTime)
	if got := r.send(0, request(client, 0x22, 5)); got[0].BTH.Opcode != wire.RCAck {
		t.Errorf("%v", got)
	}
	r.now++
	for range 2 {
		if got := r.send(0, request(client, 0x22, 5)); len(got) != 1 || got[0].BTH.Opcode != wire.RCWriteOnly {
			t.Errorf("a request of the flow that has ended: %v", got)
		}
		if got := r.send(1, response(0x11)); len(got) != 1 {
			t.Errorf("its response: %v", got)
		}
		if got := r.send(0, request(client, 0x23, 5)); len(got) != 1 || got[0].BTH.Opcode != wire.RCAck {
			t.Errorf("a request of the other one: %v", got)
		}
	}
	if len(r.m.Flows()) != 1 || r.m.Empty() {
		t.Errorf("%v", r.m.Flows())
	}
	only := newRig(t, 5, Config{})
	only.send(0, request(client, 0x22, 5))
	only.now = only.now.Add(refuseTime + 1)
	if got := only.send(0, request(client, 0x22, 5)); len(got) != 1 || got[0].BTH.Opcode != wire.RCWriteOnly {
		t.Errorf("behind one refused request: %v", got)
	}
}
