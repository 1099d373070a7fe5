package requester

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

var seedFlag = flag.Uint64("seed", 0, "replay only this seed")

const (
	ownQPN    wire.QPN = 0x77
	serverQPN wire.QPN = 0x88
)

var (
	switchMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	serverMAC = wire.MAC{2, 0, 0, 0, 0, 2}
	switchIP  = netip.MustParseAddr("10.0.0.1")
	serverIP  = netip.MustParseAddr("10.0.0.2")
)

// responder is a minimal model of the server's end: it executes requests in PSN order, coalesces or
// delays answers at random, and records what it has executed.
type responder struct {
	r        *rand.Rand
	expected wire.PSN
	msn      uint32
	nakSent  bool
	dead     bool
	refuse   uint32 // requests with this R_Key are refused
	executed []uint64
	empty    int // WRITEs of no bytes that it has executed
	results  map[wire.PSN]uint64
	depth    int
	t        testing.TB
	lazy     int // it acknowledges one in this many requests that need no response of their own
	rnr      int // chance of an RNR NAK, in thousandths
}

// take handles a request and returns the answers.
func (s *responder) take(f *wire.Frame) (out []wire.Packet) {
	if s.dead {
		return nil
	}
	answer := func(op wire.Opcode, psn wire.PSN, syn wire.Syndrome) *wire.Packet {
		out = append(out, wire.Packet{BTH: wire.BTH{Opcode: op, DestQP: ownQPN, PSN: psn}, AETH: wire.AETH{Syndrome: syn, MSN: s.msn}})
		return &out[len(out)-1]
	}
	id := f.RETH.VA
	if f.BTH.Opcode.Is(wire.OpAtomic) {
		id = f.AtomicETH.VA
	}
	switch d := wire.Diff(f.BTH.PSN, s.expected); {
	case d > 0:
		if !s.nakSent {
			s.nakSent = true
			answer(wire.RCAck, s.expected, wire.NakPSNSequence)
		}
		return out
	case d == 0 && s.r.IntN(1000) < s.rnr:
		answer(wire.RCAck, s.expected, wire.RNRNak|1)
		return out
	case d == 0 && f.RETH.RKey == s.refuse && s.refuse != 0:
		answer(wire.RCAck, s.expected, wire.NakRemoteAccess)
		s.dead = true
		return out
	case d == 0:
		s.nakSent = false
		s.executed = append(s.executed, id)
		s.expected = s.expected.Next()
		s.msn++
		if f.BTH.Opcode.Is(wire.OpAtomic) {
			s.results[f.BTH.PSN] = id * 3
		}
		if f.BTH.Opcode == wire.RCWriteOnly && len(f.Payload) == 0 {
			s.empty++
		}
		if f.BTH.Opcode == wire.RCWriteOnly && !bytes.Equal(f.Payload, payload(id, len(f.Payload))) {
			s.t.Errorf("request %d carries %x", id, f.Payload)
		}
		if !f.BTH.AckReq {
			s.t.Errorf("%v does not ask for an acknowledgement", f.BTH.Opcode)
		}
	}
	switch op := f.BTH.Opcode; {
	case op.Is(wire.OpRead):
		answer(wire.RCReadResponseOnly, f.BTH.PSN, wire.AckNoCredits).Payload = payload(id, int(f.RETH.Length))
	case op.Is(wire.OpAtomic):
		v, ok := s.results[f.BTH.PSN]
		if !ok {
			s.t.Errorf("PSN %v was no atomic", f.BTH.PSN)
		}
		answer(wire.RCAtomicAck, f.BTH.PSN, wire.AckNoCredits).AtomicAck = v
	case s.r.IntN(s.lazy) == 0:
		answer(wire.RCAck, s.expected.Add(-1), wire.AckNoCredits)
	}
	return out
}

func payload(id uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id) + byte(i)
	}
	return b
}

// rig is a switch that has only the connection.
type rig struct {
	t       testing.TB
	r       *rand.Rand
	now     clock.Time
	sw      *pipeline.Switch
	out     packetio.Batch
	c       *Conn
	s       *responder
	air     []flight
	next    uint64 // number of the next request
	done    []string
	want    []string // by the number of the request
	by      []string // opcode and PSN of what ended each request
	failed  int
	retry   bool
	chances [3]int // probabilities of loss, duplication and delay, in a thousandth
}

type flight struct {
	at   clock.Time
	data []byte
	to   int // the port to which the packet goes; -1: to the switch
}

func (r *rig) Spec() pipeline.Spec { return pipeline.Spec{Name: "test"} }
func (r *rig) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	r.c.Packet(c, &p.Frame)
	return pipeline.Consume()
}
func (r *rig) Tick(c *pipeline.Ctx) { r.c.Tick(c) }
func (r *rig) Deadline() clock.Time { return r.c.Deadline() }

func (r *rig) Done(_ *pipeline.Ctx, t Tag, a Answer) {
	text := fmt.Sprint(t.PSN, " ", a.Kind)
	switch a.Kind {
	case Atomic:
		text += fmt.Sprint(" ", a.Prior)
	case Read:
		text += fmt.Sprintf(" %x", a.Frame.Payload)
	case Refused:
		text += " " + a.Syndrome.String()
	}
	r.done = append(r.done, text)
	r.by = append(r.by, fmt.Sprint(a.Op, " ", a.PSN))
}
func (r *rig) Retry(Tag) bool                    { return r.retry }
func (r *rig) Failed(_ *pipeline.Ctx, _ string)  { r.failed++ }
func (r *rig) Describe(_ Tag, _ *transform.Note) {}

func newRig(t testing.TB, seed uint64, cfg Config) *rig {
	r := &rig{t: t, r: rand.New(rand.NewPCG(seed, 4))}
	r.s = &responder{t: t, r: r.r, results: map[wire.PSN]uint64{}, lazy: 1}
	var err error
	r.sw, err = pipeline.New(pipeline.Config{Ports: 2, Program: r, Self: pipeline.Self{MAC: switchMAC, Addrs: []netip.Addr{switchIP}}})
	if err != nil {
		t.Fatal(err)
	}
	hello := make([]byte, 60)
	copy(hello, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(hello[6:], serverMAC[:])
	r.sw.Frame(0, 1, packetio.Frame{Data: hello}, &r.out)
	r.out.Reset()
	r.c = New(cfg, r)
	return r
}

func (r *rig) attach(psn wire.PSN, depth int) {
	r.s.expected, r.s.depth, r.s.dead, r.s.nakSent = psn, depth, false, false
	clear(r.s.results)
	var to wire.Frame
	to.Eth = wire.Ethernet{Src: switchMAC, Dst: serverMAC}
	to.IPv4 = wire.IPv4{Src: switchIP.As4(), Dst: serverIP.As4(), TTL: 64, DF: true}
	to.BTH = wire.BTH{PKey: wire.DefaultPKey, DestQP: serverQPN}
	r.do(func(*pipeline.Ctx) {
		r.c.Attach(Link{To: transform.PathOf(&to), OwnQPN: ownQPN, SendPSN: psn, RecvPSN: 5, MTU: 1024, Depth: depth})
	})
}

func (r *rig) do(f func(c *pipeline.Ctx)) {
	r.sw.Step(r.now, &r.out, f)
	r.flush()
}

// submit queues a request of a kind; it returns false if there is no room.
func (r *rig) submit(op wire.Opcode, n int) (ok bool) {
	f := wire.Frame{}
	f.BTH.Opcode = op
	id := r.next
	f.RETH = wire.RETH{VA: id, RKey: 9, Length: uint32(n)}
	want := fmt.Sprint(id, " ", Acked)
	switch op {
	case wire.RCWriteOnly:
		f.Payload = payload(id, n)
	case wire.RCReadRequest:
		want = fmt.Sprintf("%d %v %x", id, Read, payload(id, n))
	default:
		f.RETH, f.AtomicETH = wire.RETH{}, wire.AtomicETH{VA: id, RKey: 9, SwapOrAdd: 1}
		want = fmt.Sprintf("%d %v %d", id, Atomic, id*3)
	}
	r.do(func(c *pipeline.Ctx) { ok = r.c.Submit(c, &f, Tag{PSN: wire.PSN(id)}) })
	clear(f.Payload) // the Conn must have copied it
	if ok {
		r.next++
		r.want = append(r.want, want)
	}
	return ok
}

func (r *rig) flush() {
	for _, f := range r.out.Frames {
		r.launch(f.Port, f.Data)
	}
	r.out.Reset()
}

func (r *rig) launch(to int, data []byte) {
	if r.r.IntN(1000) < r.chances[0] {
		return
	}
	for n := 0; n == 0 || n == 1 && r.r.IntN(1000) < r.chances[1]; n++ {
		at := r.now + 1000
		if r.r.IntN(1000) < r.chances[2] {
			at += clock.Time(r.r.IntN(10000))
		}
		r.air = append(r.air, flight{at, append([]byte(nil), data...), to})
	}
}

// step handles the next event; it returns false if there is none until a time.
func (r *rig) step(until clock.Time) bool {
	best := -1
	for i, f := range r.air {
		if best < 0 || f.at < r.air[best].at {
			best = i
		}
	}
	at := r.sw.Deadline()
	if best >= 0 {
		at = clock.Min(at, r.air[best].at)
	}
	if at > until {
		r.now = max(r.now, until)
		return false
	}
	r.now = max(r.now, at)
	if best >= 0 && r.air[best].at <= r.now {
		f := r.air[best]
		r.air = append(r.air[:best], r.air[best+1:]...)
		if f.to < 0 {
			r.sw.Frame(r.now, 1, packetio.Frame{Data: f.data}, &r.out)
		} else {
			var q wire.Frame
			if err := wire.ParseFrame(f.data, &q); err != nil || !wire.CheckICRC(f.data) || q.BTH.DestQP != serverQPN {
				r.t.Fatalf("%v %v", err, &q)
			}
			r.serve(&q)
		}
	}
	if r.sw.Deadline() <= r.now {
		r.sw.Tick(r.now, &r.out)
	}
	r.flush()
	if r.c.Requests.Outstanding() > r.c.Requests.Ring() || r.c.Requests.reads > r.c.Requests.link.Depth {
		r.t.Fatalf("%d outstanding, %d of them answered", r.c.Requests.Outstanding(), r.c.Requests.reads)
	}
	return true
}

func (r *rig) serve(q *wire.Frame) {
	for _, p := range r.s.take(q) {
		r.answer(p)
	}
}

// answer passes a packet of the server to the switch.
func (r *rig) answer(p wire.Packet) {
	f := wire.Frame{Eth: wire.Ethernet{Src: serverMAC, Dst: switchMAC}, Packet: p}
	f.IPv4 = wire.IPv4{Src: serverIP.As4(), Dst: switchIP.As4(), TTL: 64}
	f.BTH.PKey = wire.DefaultPKey
	r.launch(-1, f.AppendTo(nil))
}

func (r *rig) run(d time.Duration) {
	for until := r.now.Add(d); r.step(until); {
	}
}

// check compares the answers with the expected ones.
func (r *rig) check(seed uint64) {
	r.t.Helper()
	if fmt.Sprint(r.done) != fmt.Sprint(r.want) {
		r.t.Fatalf("seed %d: done\n%v\nwant\n%v\n%+v", seed, r.done, r.want, r.c.Stats())
	}
	for i, id := range r.s.executed {
		if id != uint64(i) {
			r.t.Fatalf("seed %d: executed %v", seed, r.s.executed)
		}
	}
}

// Under random loss, duplication and reordering every request is executed once, in the order of
// Submit, and answered once, with its own outcome: across the wrap of PSNs, on rings of 1 to 16 and
// with small depths.
func TestRequestsAreExecutedOnceInOrder(t *testing.T) {
	for seed := range uint64(100) {
		if seed++; *seedFlag != 0 && seed != *seedFlag {
			continue
		}
		p := rand.New(rand.NewPCG(seed, 8))
		r := newRig(t, seed, Config{Ring: 1 + p.IntN(16), Waiting: 1 + p.IntN(16), RTO: 20 * time.Microsecond, Silence: time.Hour, Naks: 1000})
		r.attach(wire.PSN(0xffffff-p.IntN(40)), 1+p.IntN(4))
		r.chances = [3]int{p.IntN(100), p.IntN(100), p.IntN(200)}
		r.s.lazy, r.s.rnr = 1+p.IntN(4), p.IntN(3)*20
		ops := []wire.Opcode{wire.RCWriteOnly, wire.RCWriteOnly, wire.RCReadRequest, wire.RCCmpSwap, wire.RCFetchAdd}
		for refused := 0; r.next < 120 && refused < 100000; {
			if !r.submit(ops[p.IntN(len(ops))], p.IntN(20)) {
				refused++
			}
			for range p.IntN(4) {
				r.step(r.now + 100000)
			}
		}
		r.run(200 * time.Millisecond)
		if r.failed > 0 {
			t.Fatalf("seed %d: the connection failed: %+v", seed, r.c.Stats())
		}
		r.check(seed)
	}
}

// After a fatal NAK only the request that caused it ends as Refused. The requests behind it were
// not executed and end as Returned: none of them is sent on the next connection, which may be to
// another incarnation of the server.
func TestFatalNakHitsOnlyTheGuilty(t *testing.T) {
	r := newRig(t, 1, Config{})
	r.attach(0xfffffe, 16)
	r.s.refuse = 9
	for range 3 {
		r.submit(wire.RCWriteOnly, 8)
	}
	r.run(time.Millisecond)
	if fmt.Sprint(r.done) != "[0 3 NAK_REM_ACCESS 1 5 2 5]" || r.failed != 1 || r.c.State() != Down || r.c.Requests.Queued() != 0 || r.c.Deadline() != clock.Never {
		t.Fatalf("done %v, failed %d, state %v, queued %d", r.done, r.failed, r.c.State(), r.c.Requests.Queued())
	}
	if r.submit(wire.RCWriteOnly, 8) {
		t.Error("a request was taken without a connection")
	}
	r.s.refuse = 0
	r.attach(0x10, 16)
	r.submit(wire.RCWriteOnly, 8)
	r.run(time.Millisecond)
	if fmt.Sprint(r.done[3:]) != "[3 0]" || fmt.Sprint(r.s.executed) != "[3]" {
		t.Errorf("done %v, executed %v", r.done, r.s.executed)
	}
}

// The response to a READ before the refused request arrives late, or never: the READ ends as Read,
// or as Lost, and no other request is Lost.
func TestAnswerMissingBeforeTheGuilty(t *testing.T) {
	for _, late := range []bool{true, false} {
		r := newRig(t, 1, Config{RTO: time.Millisecond})
		r.attach(5, 16)
		r.submit(wire.RCReadRequest, 4)
		r.step(r.now + 100000) // the request is at the server, and its answer is in flight
		answer := r.air
		r.air = nil
		r.s.refuse = 9
		r.submit(wire.RCWriteOnly, 8)
		r.submit(wire.RCWriteOnly, 8)
		r.run(100 * time.Microsecond)
		if len(r.done) != 0 {
			t.Fatalf("done %v", r.done)
		}
		want := "[0 4 1 3 NAK_REM_ACCESS 2 5]"
		if late {
			want = "[0 2 00010203 1 3 NAK_REM_ACCESS 2 5]"
			answer[0].at = r.now
			r.air = answer
		}
		r.run(2 * time.Millisecond)
		r.s.refuse = 0
		r.attach(5, 16)
		r.run(time.Millisecond)
		if lost := r.c.Stats().Lost; (lost == 1) == late || lost > 1 {
			t.Errorf("late %v: %d lost", late, lost)
		}
		if fmt.Sprint(r.done) != want || r.failed != 1 {
			t.Errorf("late %v: done %v, want %v, failed %d", late, r.done, want, r.failed)
		}
	}
}

// A refused request that the user wants to retry is Returned, like those behind it.
func TestRefusedRequestIsGivenBack(t *testing.T) {
	r := newRig(t, 1, Config{})
	r.attach(5, 16)
	r.s.refuse, r.retry = 9, true
	r.submit(wire.RCWriteOnly, 8)
	r.submit(wire.RCWriteOnly, 8)
	r.run(time.Millisecond)
	if fmt.Sprint(r.done) != "[0 5 1 5]" {
		t.Errorf("done %v", r.done)
	}
}

// The server is silent: the timeout doubles twice, then only one request is retransmitted, and
// after the last timeout all requests are Lost, also those that were never sent: another
// incarnation of the server may answer on the next connection.
func TestSilentServer(t *testing.T) {
	r := newRig(t, 1, Config{RTO: time.Millisecond, Silence: 15 * time.Millisecond, Ring: 2})
	r.attach(5, 16)
	r.s.dead = true
	for range 3 {
		r.submit(wire.RCWriteOnly, 8)
	}
	r.run(8 * time.Millisecond)
	if r.c.Stats().Sent != 7 {
		t.Errorf("%d packets sent in 8 ms, want 2, 2, 2 and 1", r.c.Stats().Sent)
	}
	r.run(6 * time.Millisecond) // 1 + 2 + 4 + 4 + 4 are 15
	if len(r.done) != 0 || r.c.Stats().Sent != 8 {
		t.Errorf("after 14 ms: done %v, %+v", r.done, r.c.Stats())
	}
	r.run(2 * time.Millisecond)
	if fmt.Sprint(r.done) != "[0 4 1 4 2 4]" || r.failed != 1 || r.c.Requests.Queued() != 0 {
		t.Errorf("done %v, failed %d, queued %d", r.done, r.failed, r.c.Requests.Queued())
	}
	sent := r.c.Stats().Sent
	r.attach(5, 16)
	r.run(time.Millisecond)
	if len(r.done) != 3 || r.c.Stats().Sent != sent {
		t.Errorf("done %v, %d packets sent, were %d", r.done, r.c.Stats().Sent, sent)
	}
}

// After a sequence NAK, and after an answer that skips a READ, the switch retransmits at once.
func TestLossIsRepairedWithoutTimer(t *testing.T) {
	for _, op := range []wire.Opcode{wire.RCWriteOnly, wire.RCReadRequest} {
		r := newRig(t, 1, Config{RTO: time.Second})
		r.attach(5, 16)
		r.chances[0] = 1000
		if op == wire.RCReadRequest { // the response is lost, not the request
			r.chances[0] = 0
			r.submit(op, 8)
			r.step(r.now + 100000)
			r.air = nil
		} else {
			r.submit(op, 8)
		}
		r.chances[0] = 0
		r.submit(wire.RCWriteOnly, 8)
		r.run(time.Millisecond)
		r.check(1)
	}
}

// Answers to no request in flight, or of the wrong kind, change nothing and are counted.
func TestGhosts(t *testing.T) {
	r := newRig(t, 1, Config{RTO: time.Second})
	r.attach(0xffffff, 16)
	r.s.dead = true
	r.submit(wire.RCWriteOnly, 8)
	r.submit(wire.RCReadRequest, 8)
	for _, p := range []wire.Packet{
		{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 1}},
		{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 0xfffffe}},
		{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 0x7fffff}},
		{BTH: wire.BTH{Opcode: wire.RCAtomicAck, PSN: 0xffffff}},
		{BTH: wire.BTH{Opcode: wire.RCAtomicAck, PSN: 0}},
		{BTH: wire.BTH{Opcode: wire.RCReadResponseFirst, PSN: 0}, Payload: make([]byte, 8)},
		{BTH: wire.BTH{Opcode: wire.RCReadResponseOnly, PSN: 0}, Payload: make([]byte, 4)},
	} {
		p.BTH.DestQP = ownQPN
		p.AETH.Syndrome = wire.AckNoCredits
		r.answer(p)
		r.run(time.Millisecond)
	}
	if s := r.c.Stats(); len(r.done) != 0 || s.Ghosts != 3 || s.BadResponses != 4 {
		t.Errorf("done %v, %+v", r.done, s)
	}
}

// SENDs and WRITEs of the server are acknowledged and dropped; READs and atomics are refused.
func TestRequestsOfTheServer(t *testing.T) {
	r := newRig(t, 1, Config{})
	r.attach(0, 16)
	for _, x := range []struct {
		op   wire.Opcode
		psn  wire.PSN
		want string
	}{
		{wire.RCSendOnly, 5, "ACK 5 msn 1"},
		{wire.RCSendOnly, 5, "ACK 5 msn 1"},
		{wire.RCWriteFirst, 6, "ACK 6 msn 1"},
		{wire.RCWriteLast, 7, "ACK 7 msn 2"},
		{wire.RCSendOnly, 9, "NAK_PSN_SEQ 8 msn 2"},
		{wire.RCSendOnly, 10, ""},
		{wire.RCReadRequest, 8, "NAK_INV_REQ 8 msn 2"},
		{wire.CNP, 0, ""},
	} {
		r.answer(wire.Packet{BTH: wire.BTH{Opcode: x.op, DestQP: ownQPN, PSN: x.psn, AckReq: true}})
		got := ""
		for len(r.air) > 0 {
			f := r.air[0]
			r.air = r.air[1:]
			if f.to >= 0 {
				var q wire.Frame
				_ = wire.ParseFrame(f.data, &q)
				got += fmt.Sprintf("%v %d msn %d", q.AETH.Syndrome, q.BTH.PSN, q.AETH.MSN)
				continue
			}
			r.sw.Frame(r.now, 1, packetio.Frame{Data: f.data}, &r.out)
			r.flush()
		}
		if got != x.want {
			t.Errorf("%v %d: %q, want %q", x.op, x.psn, got, x.want)
		}
	}
}

// The defaults are those that the fields' comments say; what is set stays.
func TestDefaults(t *testing.T) {
	want := Config{Ring: 128, Waiting: 1024, RTO: time.Millisecond, Silence: 255 * time.Millisecond, Naks: 64}
	for _, c := range []Config{{}, {Ring: -1, Waiting: -1, RTO: -1, Silence: -1, Naks: -1}} {
		if got := c.withDefaults(); got != want {
			t.Errorf("%+v becomes %+v, want %+v", c, got, want)
		}
	}
	one := Config{Number: 1, Ring: 1, Waiting: 1, RTO: 1, Silence: 1, Naks: 1}
	if got := one.withDefaults(); got != one {
		t.Errorf("%+v becomes %+v", one, got)
	}
}

// The user of a connection learns which packet of the server has ended a request, and also if no
// packet has.
func TestWhatEndsARequest(t *testing.T) {
	r := newRig(t, 1, Config{})
	r.attach(5, 16)
	r.submit(wire.RCWriteOnly, 8)
	r.run(time.Millisecond)
	r.submit(wire.RCReadRequest, 8)
	r.run(time.Millisecond)
	r.s.dead = true
	r.submit(wire.RCWriteOnly, 8)
	r.run(time.Second)
	want := []string{fmt.Sprint(wire.RCAck, " 5"), fmt.Sprint(wire.RCReadResponseOnly, " 6"), fmt.Sprint(wire.Opcode(0), " 0")}
	if !slices.Equal(r.by, want) {
		t.Errorf("ended by %q, want %q", r.by, want)
	}
}
