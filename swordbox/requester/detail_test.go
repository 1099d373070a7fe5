package requester

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// sends removes the packets in flight to the server and describes them.
func (r *rig) sends() (list []string) {
	r.t.Helper()
	for _, f := range r.air {
		var q wire.Frame
		if err := wire.ParseFrame(f.data, &q); err != nil || f.to < 0 {
			r.t.Fatal(err, f.to)
		}
		list = append(list, fmt.Sprint(q.BTH.PSN, " ", q.BTH.Opcode))
	}
	r.air = nil
	return list
}

// ack is an acknowledgement of the server that arrives at once.
func (r *rig) ack(psn wire.PSN, s wire.Syndrome) {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, DestQP: ownQPN, PSN: psn}, AETH: wire.AETH{Syndrome: s}}
	r.do(func(c *pipeline.Ctx) { r.c.Packet(c, &wire.Frame{Packet: p}) })
}

func (r *rig) wantSends(what string, want ...string) {
	r.t.Helper()
	if got := r.sends(); !slices.Equal(got, want) {
		r.t.Errorf("%s: sent %q, want %q", what, got, want)
	}
}

var (
	writeOnly   = " " + wire.RCWriteOnly.String()
	readRequest = " " + wire.RCReadRequest.String()
)

// quiet is a rig whose server answers only what the test says.
func quiet(t *testing.T, cfg Config, psn wire.PSN, depth int) *rig {
	t.Helper()
	r := newRig(t, 1, cfg)
	r.attach(psn, depth)
	return r
}

// A ring that is full doubles, up to Ring and Waiting together, and keeps every request.
func TestRingGrows(t *testing.T) {
	r := quiet(t, Config{Ring: 3, Waiting: 70}, 0xfffffe, 16)
	for range 7 { // so that the ring does not begin at its first place
		r.submit(wire.RCWriteOnly, 8)
	}
	r.run(time.Millisecond)
	for i := range 73 {
		if !r.c.Requests.Room(8) || !r.submit(wire.RCWriteOnly, 8) {
			t.Fatalf("no room for request %d", i)
		}
	}
	if r.submit(wire.RCWriteOnly, 8) || r.c.Requests.Room(0) {
		t.Error("there is room for one more")
	}
	if s := r.c.Stats(); s.Submitted != 80 || s.NoRoom != 1 || r.c.Requests.Outstanding() != 3 || r.c.Requests.Queued() != 70 || r.c.Requests.NextPSN() != 8 {
		t.Errorf("%+v, %d in flight, %d wait, next PSN %v", s, r.c.Requests.Outstanding(), r.c.Requests.Queued(), r.c.Requests.NextPSN())
	}
	r.run(10 * time.Millisecond)
	r.check(1)
	if r.c.Requests.Room(1025) || !r.c.Requests.Room(1024) {
		t.Error("the path MTU is not the bound of a payload")
	}
}

// Each lists the requests with their PSNs; Oldest and HasEnded follow the answers.
func TestListOfRequests(t *testing.T) {
	r := quiet(t, Config{Number: 7}, 0xfffffe, 16)
	if _, ok := r.c.Requests.Oldest(); ok || r.c.Number() != 7 {
		t.Error("a request without Submit")
	}
	var ends [3]uint32
	for i := range ends {
		r.now = clock.Time(1000 * (i + 1))
		r.submit(wire.RCWriteOnly, 8)
		ends[i] = r.c.Requests.Newest()
	}
	r.air = nil
	list := func() (text []string) {
		r.c.Requests.Each(func(tag Tag, psn wire.PSN, op wire.Opcode, since clock.Time) {
			text = append(text, fmt.Sprint(tag.PSN, " ", psn, " ", op, " ", int64(since)))
		})
		return text
	}
	all := []string{
		fmt.Sprint("0 ", wire.PSN(0xfffffe), writeOnly, " 1000"), fmt.Sprint("1 ", wire.PSN(0xffffff), writeOnly, " 2000"),
		fmt.Sprint("2 ", wire.PSN(0), writeOnly, " 3000"),
	}
	if got := list(); !slices.Equal(got, all) {
		t.Errorf("%q, want %q", got, all)
	}
	r.ack(0xffffff, wire.AckNoCredits)
	if got := list(); !slices.Equal(got, all[2:]) {
		t.Errorf("%q, want %q", got, all[2:])
	}
	since, ok := r.c.Requests.Oldest()
	if !ok || since != 3000 || !r.c.Requests.HasEnded(ends[0]) || !r.c.Requests.HasEnded(ends[1]) || r.c.Requests.HasEnded(ends[2]) {
		t.Errorf("oldest %v, %v", since, ok)
	}
}

// SubmitInPlace turns the frame into the packet to send if the request may be sent at once, and
// else queues it as Submit does.
func TestSubmitInPlace(t *testing.T) {
	r := quiet(t, Config{Ring: 2, Waiting: 2}, 5, 16)
	in := func() (f wire.Frame, ok, now bool) {
		f.BTH.Opcode, f.Payload = wire.RCWriteOnly, payload(r.next, 8)
		f.RETH = wire.RETH{VA: r.next, RKey: 9, Length: 8}
		r.do(func(c *pipeline.Ctx) { ok, now, _ = r.c.SubmitInPlace(c, &f, Tag{PSN: wire.PSN(r.next)}) })
		r.next++
		return f, ok, now
	}
	for psn := range wire.PSN(2) {
		f, ok, now := in()
		if !ok || !now || f.BTH.PSN != 5+psn || f.BTH.DestQP != serverQPN || len(r.air) != 0 {
			t.Errorf("%v, now %v: %v; %d packets", ok, now, f.BTH, len(r.air))
		}
	}
	if at := r.c.Deadline(); at != r.now.Add(time.Millisecond) {
		t.Errorf("deadline %v", at)
	}
	for range 2 { // they wait
		if _, ok, now := in(); !ok || now || len(r.air) != 0 {
			t.Errorf("%v, now %v, %d packets", ok, now, len(r.air))
		}
	}
	if _, ok, now := in(); ok || now {
		t.Error("there is room")
	}
	if s := r.c.Stats(); s.Sent != 2 || s.Submitted != 4 || r.c.Requests.Queued() != 2 {
		t.Errorf("%+v, %d wait", s, r.c.Requests.Queued())
	}
	r.ack(5, wire.AckNoCredits)
	r.wantSends("behind the answer", "7"+writeOnly)
}

// A request keeps its service class and its bytes through a retransmission, though another one
// takes its place in the ring later.
func TestCopyOfARequest(t *testing.T) {
	r := quiet(t, Config{RTO: time.Millisecond}, 5, 16)
	for i, v6 := range []bool{false, true, false} {
		f := wire.Frame{V6: v6}
		f.BTH.Opcode, f.Payload = wire.RCWriteOnly, payload(uint64(i), 8-i)
		f.IPv4.TOS, f.IPv6.TrafficClass = 0x20, 0x40
		if i == 2 {
			f.IPv4.TOS = 0x60
		}
		r.do(func(c *pipeline.Ctx) { r.c.Submit(c, &f, Tag{}) })
		r.air = nil
		r.now = r.c.Deadline()
		r.do(r.c.Tick)
		var q wire.Frame
		if err := wire.ParseFrame(r.air[0].data, &q); err != nil {
			t.Fatal(err)
		}
		if q.IPv4.TOS != []uint8{0x20, 0x40, 0x60}[i] || string(q.Payload) != string(payload(uint64(i), 8-i)) || len(r.air) != 1 {
			t.Errorf("request %d: class %#x, % x", i, q.IPv4.TOS, q.Payload)
		}
		r.air = nil
		r.ack(wire.PSN(5+i), wire.AckNoCredits)
	}
	if s := r.c.Stats(); s.Sent != 6 || s.Resent != 3 || s.Timeouts != 3 {
		t.Errorf("%+v", s)
	}
	for range 40 { // entries are used again
		r.submit(wire.RCWriteOnly, 8)
		r.air = nil
		r.ack(r.c.Requests.NextPSN().Add(-1), wire.AckNoCredits)
	}
	if s := r.c.Stats(); s.Resent != 3 || r.c.Requests.Outstanding() != 0 || r.c.Deadline() != clock.Never {
		t.Errorf("%+v, %d in flight, deadline %v", s, r.c.Requests.Outstanding(), r.c.Deadline())
	}
}

// Refusals of the same request are tolerated Naks times; an answer between them begins the count
// again.
func TestNaksWithoutProgress(t *testing.T) {
	r := quiet(t, Config{Naks: 2, RTO: time.Second}, 5, 16)
	nak := func(psn wire.PSN) { r.ack(psn, wire.NakPSNSequence); r.air = nil }
	for range 8 {
		r.submit(wire.RCWriteOnly, 8)
	}
	nak(5)
	nak(5)
	r.ack(5, wire.AckNoCredits)
	nak(6)
	nak(6)
	if r.failed != 0 {
		t.Fatalf("failed: %+v", r.c.Stats())
	}
	nak(6)
	if s := r.c.Stats(); r.failed != 1 || s.SeqNaks != 5 || s.Failures != 1 || s.Lost != 7 || r.c.State() != Down {
		t.Errorf("failed %d, %+v", r.failed, s)
	}
}

// An answer that skips READs has them sent again once; after progress, the next such answer has
// them sent again, too.
func TestSkippedReads(t *testing.T) {
	r := quiet(t, Config{RTO: time.Second}, 5, 16)
	for range 2 {
		r.submit(wire.RCReadRequest, 4)
		r.submit(wire.RCWriteOnly, 8)
	}
	r.air = nil
	read := func(psn wire.PSN) {
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadResponseOnly, DestQP: ownQPN, PSN: psn}, AETH: wire.AETH{Syndrome: wire.AckNoCredits}, Payload: make([]byte, 4)}
		r.do(func(c *pipeline.Ctx) { r.c.Packet(c, &wire.Frame{Packet: p}) })
	}
	r.ack(6, wire.AckNoCredits)
	r.wantSends("the first READ is skipped", "5"+readRequest, "6"+writeOnly, "7"+readRequest, "8"+writeOnly)
	r.ack(8, wire.AckNoCredits)
	r.wantSends("it is skipped again")
	read(5)
	r.ack(8, wire.AckNoCredits)
	r.wantSends("the second READ is skipped", "7"+readRequest, "8"+writeOnly)
	read(7)
	r.ack(8, wire.AckNoCredits)
	if s := r.c.Stats(); s.Implied != 2 || len(r.done) != 4 || r.c.Requests.reads != 0 || r.c.Deadline() != clock.Never {
		t.Errorf("%+v, done %v, %d READs", s, r.done, r.c.Requests.reads)
	}
}

// During the wait that an RNR NAK asks for nothing is sent, and NAKs of the same request change
// nothing.
func TestWaitOfAnRNRNak(t *testing.T) {
	r := quiet(t, Config{RTO: time.Second}, 5, 16)
	r.submit(wire.RCWriteOnly, 8)
	r.submit(wire.RCWriteOnly, 8)
	r.air = nil
	r.ack(5, wire.RNRNak|14)
	at := r.now.Add(1280 * time.Microsecond)
	if r.c.Deadline() != at {
		t.Errorf("deadline %v, want %v", r.c.Deadline(), at)
	}
	r.now += 1000
	r.ack(5, wire.RNRNak|14)
	r.ack(5, wire.NakPSNSequence)
	r.submit(wire.RCWriteOnly, 8)
	r.wantSends("in the wait")
	if s := r.c.Stats(); r.c.Deadline() != at || s.RNRs != 1 || s.SeqNaks != 0 {
		t.Errorf("deadline %v, %+v", r.c.Deadline(), s)
	}
	r.now = at
	r.do(r.c.Tick)
	r.wantSends("behind the wait", "5"+writeOnly, "6"+writeOnly, "7"+writeOnly)
	r.ack(6, wire.RNRNak|14)
	if len(r.done) != 1 || r.c.Stats().RNRs != 2 {
		t.Errorf("done %v, %+v", r.done, r.c.Stats())
	}
	r.ack(6, wire.NakRemoteOp)
	if s := r.c.Stats(); s.Refusals != 1 || r.failed != 1 || s.Lost != 0 || fmt.Sprint(r.done[1:]) != "[1 3 "+wire.NakRemoteOp.String()+" 2 5]" {
		t.Errorf("failed %d, %+v, done %v", r.failed, s, r.done)
	}
}

// What is no packet of the server's end of a connection is counted, and a packet without connection
// is a ghost. Detach ends a connection that is up without calling it failed.
func TestPacketsOfNoConnection(t *testing.T) {
	r := newRig(t, 1, Config{})
	if r.c.Deadline() != clock.Never {
		t.Errorf("deadline %v", r.c.Deadline())
	}
	r.do(r.c.Detach)
	r.ack(5, wire.AckNoCredits)
	if s := r.c.Stats(); s.Ghosts != 1 || s.Failures != 0 || r.c.State() != Idle {
		t.Errorf("%+v in %v", s, r.c.State())
	}
	r.attach(5, 16)
	for _, op := range []wire.Opcode{wire.UCSendOnly, wire.CNP} {
		p := wire.Packet{BTH: wire.BTH{Opcode: op, PSN: 5}}
		r.do(func(c *pipeline.Ctx) { r.c.Packet(c, &wire.Frame{Packet: p}) })
	}
	r.submit(wire.RCWriteOnly, 8)
	r.do(r.c.Detach)
	if s := r.c.Stats(); s.BadResponses != 2 || s.FromServer != 0 || s.Failures != 1 || s.Lost != 1 || r.failed != 0 || r.c.State() != Down {
		t.Errorf("%+v in %v, failed %d", s, r.c.State(), r.failed)
	}
}

// Each gap in the requests of the server draws one NAK, also the second gap.
func TestGapsOfTheServer(t *testing.T) {
	r := quiet(t, Config{}, 0, 16)
	for _, x := range []struct {
		psn  wire.PSN
		want int // packets
	}{{6, 1}, {7, 0}, {5, 0}, {7, 1}, {8, 0}} {
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PSN: x.psn}}
		r.do(func(c *pipeline.Ctx) { r.c.Packet(c, &wire.Frame{Packet: p}) })
		if len(r.air) != x.want {
			t.Errorf("%v draws %d packets, want %d", x.psn, len(r.air), x.want)
		}
		r.air = nil
	}
	if s := r.c.Stats(); s.FromServer != 5 {
		t.Errorf("%+v", s)
	}
}

// A link names both addresses, of both families; bounds and depth have their defaults.
func TestLink(t *testing.T) {
	var to wire.Frame
	to.IPv4 = wire.IPv4{Src: switchIP.As4(), Dst: serverIP.As4()}
	l := Link{To: transform.PathOf(&to)}
	if l.Own() != switchIP || l.Peer() != serverIP {
		t.Errorf("%v to %v", l.Own(), l.Peer())
	}
	own, peer := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	to.V6, to.IPv6 = true, wire.IPv6{Src: own.As16(), Dst: peer.As16()}
	l = Link{To: transform.PathOf(&to)}
	if l.Own() != own || l.Peer() != peer {
		t.Errorf("%v to %v", l.Own(), l.Peer())
	}
	if ring, waiting := (Config{}).Bounds(); ring != 128 || waiting != 1024 {
		t.Errorf("%d and %d", ring, waiting)
	}
	r := quiet(t, Config{}, 5, 0)
	r.submit(wire.RCReadRequest, 4)
	r.submit(wire.RCReadRequest, 4)
	if r.c.Link().Depth != 1 || r.c.Requests.Outstanding() != 1 || r.c.Requests.Ring() != 128 {
		t.Errorf("depth %d, %d in flight, ring %d", r.c.Link().Depth, r.c.Requests.Outstanding(), r.c.Requests.Ring())
	}
}

// Timeouts are counted since the last answer, whatever the answer says.
func TestTries(t *testing.T) {
	for _, answer := range []struct {
		op wire.Opcode
		s  wire.Syndrome
	}{
		{wire.RCAck, wire.AckNoCredits},
		{wire.RCAck, wire.NakPSNSequence},
		{wire.RCAck, wire.RNRNak | 1},
		{wire.RCReadResponseOnly, wire.AckNoCredits},
		{wire.RCAtomicAck, wire.AckNoCredits},
	} {
		r := quiet(t, Config{RTO: time.Millisecond}, 5, 16)
		op := map[wire.Opcode]wire.Opcode{wire.RCAck: wire.RCWriteOnly, wire.RCReadResponseOnly: wire.RCReadRequest, wire.RCAtomicAck: wire.RCFetchAdd}[answer.op]
		for range 2 {
			r.submit(op, 8)
		}
		for want := range 4 {
			if r.c.Tries() != want {
				t.Errorf("%d tries, want %d", r.c.Tries(), want)
			}
			if wait := r.c.Deadline().Sub(r.now); wait != time.Millisecond<<min(want, 2) {
				t.Errorf("after %d tries it waits for %v", want, wait)
			}
			r.now = r.c.Deadline()
			r.do(r.c.Tick)
		}
		p := wire.Packet{BTH: wire.BTH{Opcode: answer.op, DestQP: ownQPN, PSN: 5}, AETH: wire.AETH{Syndrome: answer.s}}
		if op == wire.RCReadRequest {
			p.Payload = make([]byte, 8)
		}
		r.do(func(c *pipeline.Ctx) { r.c.Packet(c, &wire.Frame{Packet: p}) })
		if r.c.Tries() != 0 || r.c.Requests.Outstanding() != 2 && answer.s != wire.AckNoCredits {
			t.Errorf("%v %v: %d tries, %d in flight", answer.op, answer.s, r.c.Tries(), r.c.Requests.Outstanding())
		}
	}
}

// With a capture, each packet says which request it carries, and whether it is sent again; without
// one, no text is made.
func TestNotes(t *testing.T) {
	for _, observed := range []bool{true, false} {
		r := quiet(t, Config{Number: 7, RTO: time.Millisecond}, 5, 16)
		r.sw.Observe(observed)
		check := func(what string, parts ...string) {
			t.Helper()
			if !observed {
				parts = nil
			}
			text := fmt.Sprint(r.sw.Notes())
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %s, want %q", what, text, part)
				}
			}
			if strings.Contains(text, "retransmitted") != slices.Contains(parts, "retransmitted") {
				t.Errorf("%s: %s", what, text)
			}
		}
		r.submit(wire.RCWriteOnly, 8)
		check("the first time", "conn 7 psn 0→5")
		r.now = r.c.Deadline()
		r.do(r.c.Tick)
		check("again", "conn 7 psn 0→5", "retransmitted")
		f, note := wire.Frame{}, ""
		f.BTH.Opcode = wire.RCWriteOnly
		r.do(func(c *pipeline.Ctx) { _, _, note = r.c.SubmitInPlace(c, &f, Tag{PSN: 3}) })
		if strings.Contains(note, "conn 7 psn 3→6") != observed || note == "" == observed {
			t.Errorf("in place: %q", note)
		}
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest, PSN: 5}}
		r.do(func(c *pipeline.Ctx) { r.c.Packet(c, &wire.Frame{Packet: p}) })
		check("a request of the server", "the switch has no memory")
	}
}
