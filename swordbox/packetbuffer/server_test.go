package packetbuffer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const (
	regionAddr = 0x7000_0000
	regionKey  = 0x1234
	ownQPN     = 0x77
)

var (
	serverMAC, switchMAC = wire.MAC{2, 0, 0, 0, 0, 3}, wire.MAC{2, 0, 0, 0, 0, 9}
	serverIP, switchIP   = netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.9")
)

// wired is a handler whose requests go as packets to a server behind port 2.
type wired struct {
	t      *testing.T
	sw     *pipeline.Switch
	now    clock.Time
	m      *Machine
	memory []byte
	psn    wire.PSN
	msn    uint32
	ops    []wire.Opcode
	notes  []string
	got    [][]byte
	failed []string
	deaf   bool
	// answers are those of the server that are on their way; answering: step delivers them.
	answers   []wire.Frame
	answering bool
}

func newWired(t *testing.T, rule string) *wired {
	t.Helper()
	w := &wired{t: t, now: clock.Time(time.Second), memory: make([]byte, 1<<16), psn: 100}
	var err error
	if w.sw, err = pipeline.New(pipeline.Config{Ports: 3, Program: noProgram{}}); err != nil {
		t.Fatal(err)
	}
	var out packetio.Batch
	w.sw.Frame(w.now, 2, packetio.Frame{Data: append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 3}, make([]byte, 50)...)}, &out)
	w.sw.Observe(true)
	w.m = Kind.New(&handler.Env{
		Port:   func(netip.Addr) int { return portOfHost },
		Failed: func(_ *pipeline.Ctx, _ switchconn.Key, _ uint32, why string) { w.failed = append(w.failed, why) },
	}).(*Machine)
	set, err := ruleSet(t, "server=cn0 action=buffer "+rule)
	if err != nil {
		t.Fatal(err)
	}
	w.m.SetRules(set)
	return w
}

// attach connects the switch to the server.
func (w *wired) attach() {
	w.t.Helper()
	if !w.offer(1, 4096) {
		w.t.Error("the connection is not used")
	}
}

// offer offers a connection with a path MTU.
func (w *wired) offer(generation uint32, mtu int) (ok bool) {
	w.t.Helper()
	g := memgrant.Grant{Region: memgrant.Region{Addr: regionAddr, RKey: regionKey, Len: len(w.memory)}}
	var to wire.Frame
	to.Eth = wire.Ethernet{Src: switchMAC, Dst: serverMAC}
	to.IPv4 = wire.IPv4{Src: switchIP.As4(), Dst: serverIP.As4(), TTL: 64, DF: true}
	to.BTH = wire.BTH{PKey: wire.DefaultPKey, DestQP: 0x55}
	s := switchconn.Shared{
		Key: w.m.Links.All[0].Key(), Generation: generation, ServerQPN: 0x55, OwnQPN: ownQPN, SendPSN: w.psn, RecvPSN: w.psn, MTU: mtu, Depth: 4, To: to,
		Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	w.step(func(c *pipeline.Ctx) { ok = w.m.Attach(c, s) && w.m.Links.All[0].Up() })
	return ok
}

// step runs a step, and lets the server execute and answer the requests that it gets.
func (w *wired) step(f func(c *pipeline.Ctx)) {
	w.t.Helper()
	var out packetio.Batch
	w.sw.Step(w.now, &out, f)
	for _, n := range w.sw.Notes() {
		w.notes = append(w.notes, n.Text)
	}
	for _, x := range out.Frames {
		var p wire.Frame
		if wire.ParseFrame(x.Data, &p) != nil || !wire.CheckICRC(x.Data) {
			if x.Port == portOfHost {
				w.got = append(w.got, bytes.Clone(x.Data))
			}
			continue
		}
		if !w.deaf {
			w.answers = append(w.answers, w.execute(&p))
		}
	}
	if w.answering {
		return
	}
	for w.answering = true; len(w.answers) > 0; {
		a := w.answers[0]
		w.answers = w.answers[1:]
		w.step(func(c *pipeline.Ctx) {
			if v := w.m.Owned(c, &pipeline.Parsed{Frame: a}); v.Action != pipeline.ActConsume {
				w.t.Errorf("an answer of the server: %v", v.Action)
			}
		})
	}
	w.answering = false
}

func (w *wired) execute(p *wire.Frame) wire.Frame {
	w.t.Helper()
	at := p.RETH.VA - regionAddr
	if p.BTH.PSN != w.psn || p.RETH.RKey != regionKey || at+uint64(p.RETH.Length) > uint64(len(w.memory)) || p.BTH.DestQP != 0x55 {
		w.t.Fatalf("the server gets %v, want PSN %v", p, w.psn)
	}
	w.ops = append(w.ops, p.BTH.Opcode)
	w.psn, w.msn = w.psn.Next(), w.msn+1
	var a wire.Frame
	a.IPv4 = wire.IPv4{Src: serverIP.As4(), Dst: switchIP.As4(), TTL: 64}
	a.BTH = wire.BTH{Opcode: wire.RCAck, PKey: wire.DefaultPKey, DestQP: ownQPN, PSN: p.BTH.PSN}
	a.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: w.msn}
	switch p.BTH.Opcode {
	case wire.RCWriteOnly:
		copy(w.memory[at:], p.Payload)
	case wire.RCReadRequest:
		a.BTH.Opcode = wire.RCReadResponseOnly
		a.Payload = bytes.Clone(w.memory[at:][:p.RETH.Length])
	default:
		w.t.Fatalf("the server gets %v", p)
	}
	return a
}

// send hands a frame to the handler that leaves to the host.
func (w *wired) send(i int) {
	w.step(func(c *pipeline.Ctx) {
		if !w.m.Queue(c, portOfHost, packetio.Frame{Data: frameOf(i)}) {
			w.t.Error("the port has no queue")
		}
	})
}

func frameOf(i int) []byte {
	return append([]byte{2, 0, 0, 0, 0, 1}, bytes.Repeat([]byte{byte(i)}, 994)...)
}

// run lets d pass.
func (w *wired) run(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for range 10_000 {
		at := w.m.Deadline()
		if at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.step(w.m.Tick)
	}
	w.t.Fatal("a deadline is always in the past")
}

// Frames that find no room in the switch go to the server's memory by WRITEs under the key and at the
// addresses that it has lent, from the offset of the rule on, and come back by READs of two entries. A
// capture says what the requests are for.
func TestFramesGoToTheServerAndComeBack(t *testing.T) {
	w := newWired(t, "ring=ms0 rate=8Mbit high=4 low=2 entries=8 entry=2048 offset=0x4000")
	w.attach()
	for i := range 13 {
		w.send(i)
	}
	const area = 8 * 2048
	head, tail := w.memory[:0x4000], w.memory[0x4000+area:]
	if !bytes.Equal(head, make([]byte, len(head))) || !bytes.Equal(tail, make([]byte, len(tail))) || bytes.Equal(w.memory[0x4000:][:area], make([]byte, area)) {
		t.Error("the frames are not in the memory of the ring alone")
	}
	w.run(time.Second)
	if len(w.got) != 13 {
		t.Fatalf("%d of 13 frames have left; %+v", len(w.got), w.m.Stats())
	}
	for i, f := range w.got {
		if !bytes.Equal(f, frameOf(i)) {
			t.Errorf("frame %d in place %d", f[6], i)
		}
	}
	writes, reads := 0, 0
	for _, op := range w.ops {
		switch op {
		case wire.RCWriteOnly:
			writes++
		case wire.RCReadRequest:
			reads++
		}
	}
	if st := w.m.Stats(); writes != 8 || reads != 4 || st.Stored != 8 || st.Loaded != 8 || st.Lost+st.Full+st.Blocked != 0 || st.Sent != 13 {
		t.Errorf("%d WRITEs, %d READs, %+v", writes, reads, st)
	}
	w.send(13) // the port still has its queue
	notes := strings.Join(w.notes, "\n")
	if strings.Count(notes, "buffer: store") != writes || strings.Count(notes, "buffer: load") < reads {
		t.Errorf("notes\n%s", notes)
	}
}

// A server that does not answer any more fails after some time. Its frames are lost and counted, and
// the program is asked for another connection. A packet of another host to the connection is dropped.
func TestServerThatDoesNotAnswer(t *testing.T) {
	w := newWired(t, "ring=ms0 rate=8Mbit high=4 low=4 entries=8 entry=2048")
	w.attach()
	for i := range 9 {
		w.send(i)
	}
	l := w.m.Links.All[0]
	var stranger wire.Frame
	stranger.IPv4 = wire.IPv4{Src: switchIP.As4(), Dst: switchIP.As4(), TTL: 64}
	stranger.BTH = wire.BTH{Opcode: wire.RCAck, DestQP: ownQPN, PSN: w.psn}
	stranger.AETH.Syndrome = wire.NakRemoteOp
	for _, qpn := range []wire.QPN{ownQPN, ownQPN + 1} {
		stranger.BTH.DestQP = qpn
		w.step(func(c *pipeline.Ctx) {
			if v := w.m.Owned(c, &pipeline.Parsed{Frame: stranger}); v.Action != pipeline.ActDrop {
				t.Errorf("a packet to queue pair %v: %v", qpn, v.Action)
			}
		})
	}
	w.send(9) // the port still has its queue
	if !l.Up() || w.m.Stats().Strangers != 2 {
		t.Errorf("up %v, %+v", l.Up(), w.m.Stats())
	}
	w.deaf = true
	w.run(100 * time.Millisecond)
	if len(w.failed) != 0 {
		t.Errorf("after 100 ms: %v", w.failed)
	}
	w.run(time.Second)
	st := w.m.Stats()
	if len(w.failed) != 1 || st.Failures != 1 || l.Up() || st.Lost == 0 || st.Sent+st.Lost+st.Full != 10 {
		t.Errorf("%v; up %v, %+v", w.failed, l.Up(), st)
	}
	info := w.m.list(w.now)
	if len(info) != 1 || info[0].Ring[0].Up || info[0].Lost != st.Lost {
		t.Errorf("%+v", info)
	}
}

// An operator sees each queue with its rule, what waits where, and what became of the frames.
func TestQueuesAreShown(t *testing.T) {
	w := newWired(t, "ring=ms0 rate=8Mbit high=4 low=2 entries=8 entry=2048 depth=4")
	if got := print(t, w.m.list(w.now)); !strings.Contains(got, "-ms0") {
		t.Errorf("without a connection:\n%s", got)
	}
	w.attach()
	for i := range 20 {
		w.send(i)
	}
	id := w.m.queues[0].id
	want := "RULE  MODE      RATE   WAITING  REMOTE      STORED  LOADED  LOST  DROPPED  RING\n" +
		id + "    hardened  8Mbit  4 of 4   8 (8 of 8)  8       0       0     7        ms0\n"
	if got := print(t, w.m.list(w.now)); got != want {
		t.Errorf("the listing is\n%swant\n%s", got, want)
	}
	list := w.m.Tables()
	if len(list) != 2 || list[0].Used != 4 || list[0].Max != 2*4+2*4 || list[1].Used != 8 || list[1].Max != 8 || list[0].Clear || list[1].Clear {
		t.Errorf("tables %+v", list)
	}
	if w.m.ClearTable(list[0].Name) != 0 || w.m.queues[0].waiting() != 4 {
		t.Error("frames that wait were cleared")
	}
	counts := map[string]uint64{}
	for _, c := range w.m.Info(w.now).Counters {
		counts[c.Name] = c.Value
	}
	for name, n := range map[string]uint64{"frames": 20, "sent": 1, "stored": 8, "full": 7, "waiting": 4, "remote": 8, "requester_sent": 8} {
		if got, ok := counts[name]; !ok || got != n {
			t.Errorf("%s is %d (%v), want %d", name, got, ok, n)
		}
	}
	w.m.SetRules(&rules.Set{})
	if info := w.m.list(w.now); len(info) != 1 || info[0].Rate != 0 {
		t.Errorf("a queue whose rule has gone: %+v", info)
	}
	before := w.m.Stats()
	w.run(time.Second)
	if st := w.m.Stats(); len(w.m.queues) != 0 || st.Frames != before.Frames || st.Sent != 13 || st.Loaded != 8 {
		t.Errorf("%d queues, %+v", len(w.m.queues), st)
	}
	other := newBed(t, "ring=ms0 rate=8Mbit mode=published").machines[1]
	for _, x := range other.Tables() {
		if !strings.HasPrefix(x.Name, "published ") {
			t.Errorf("a table of the published handler is called %q", x.Name)
		}
	}
	for _, c := range other.Info(0).Counters {
		if strings.HasPrefix(c.Name, "requester_") {
			t.Errorf("a handler without a requester has the counter %q", c.Name)
		}
	}
	if got := print(t, nil); !strings.Contains(got, "no rule queues") {
		t.Errorf("%q", got)
	}
}

func print(t *testing.T, list []Item) string {
	t.Helper()
	var b strings.Builder
	if err := Print(&b, func(netip.Addr) string { return "ms0" }, list); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What the handlers declare for a switching chip is a golden file, so that a review shows a changed
// size.
func TestSpecIsAsReviewed(t *testing.T) {
	b := newBed(t, "ring=ms0,ms1 rate=8Mbit entries=64")
	text, err := json.MarshalIndent([]pipeline.Part{New(Config{Kind: &Kind}).Spec(), b.machines[0].Spec(), b.machines[1].Spec()}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/spec.json", string(text)+"\n")
}

// Each port of a rule has its own queue and its own connections; a rule whose host has no port, or
// whose server has no address yet, waits, and wants no connection.
func TestQueuesOfPorts(t *testing.T) {
	ports := map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 0, netip.MustParseAddr("10.0.0.2"): 2}
	m := New(Config{
		Kind: &Kind, Carrier: func(l *Link, _ uint32) Carrier { return &memory{link: l, bytes: map[uint64][]byte{}} },
		Port: func(a netip.Addr) int {
			if p, ok := ports[a]; ok {
				return p
			}
			return -1
		},
	})
	set, err := ruleSet(t, "server=cn0 action=buffer ring=ms0,ms1 rate=8Mbit", "server=cn1 action=buffer ring=ms0 rate=8Mbit offset=0x800000 depth=3")
	if err != nil {
		t.Fatal(err)
	}
	m.SetRules(set)
	if len(m.queues) != 2 || m.at(0) == nil || m.at(2) == nil || m.at(1) != nil || m.at(3) != nil || m.at(-1) != nil || len(m.Links.All) != 3 || len(m.idle) != 0 {
		t.Errorf("%d queues, %d connections, %v wait", len(m.queues), len(m.Links.All), m.idle)
	}
	seen := map[switchconn.Key]bool{}
	for i, want := range []int{2, 1} {
		r := &set.All()[i]
		list := m.Wants(r)
		if len(list) != want {
			t.Errorf("rule %d wants %d connections, want %d", i, len(list), want)
		}
		for _, x := range list {
			if seen[x.Key] || !m.Uses(x.Key) || x.Target.Service != r.Service || x.Target.Depth != r.Depth() {
				t.Errorf("rule %d wants %+v", i, x)
			}
			seen[x.Key] = true
		}
	}
	delete(ports, netip.MustParseAddr("10.0.0.2"))
	m.SetRules(set)
	if len(m.queues) != 1 || m.at(2) != nil || len(m.idle) != 1 || m.Wants(&set.All()[1]) != nil {
		t.Errorf("%d queues, %v wait", len(m.queues), m.idle)
	}
	if m = New(Config{Kind: &Kind}); m.Wants(&set.All()[0]) != nil {
		t.Error("without ports a rule wants connections")
	}
	m.SetRules(set)
	if len(m.queues) != 0 || len(m.idle) != 2 {
		t.Errorf("without ports there are %d queues, %v wait", len(m.queues), m.idle)
	}
}

// As many frames wait in the switch as the rule says. Frames come back from the ring as soon as fewer
// wait than the lower number.
func TestBoundsOfWaitingFrames(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=6 low=3 entries=64")
	k, q := b.servers[0][0], b.machines[0].queues[0]
	b.send(7, 1000) // one leaves
	if q.local.n != 6 || len(k.bytes) != 0 {
		t.Errorf("%d frames wait, %d are stored, want 6 and none", q.local.n, len(k.bytes))
	}
	b.send(10, 1000)
	if q.local.n != 6 || len(k.bytes) != 10 || len(k.reads) != 0 {
		t.Errorf("%d frames wait, %d are stored, %d READs, want 6, 10 and none", q.local.n, len(k.bytes), len(k.reads))
	}
	for want := 5; want >= 2; want-- {
		b.now = b.now.Add(time.Millisecond)
		b.tick()
		if q.local.n != want || (len(k.reads) > 0) != (want < 3) {
			t.Errorf("%d frames wait, %d READs, want %d, and READs below 3", q.local.n, len(k.reads), want)
		}
	}
	b.run(time.Second)
	b.want("all", 17)
}

// A frame finds room if fewer than so many wait and their bytes have room on average. An empty queue
// takes any frame.
func TestRoomForWaitingFrames(t *testing.T) {
	var q fifo
	if !q.takes(1<<30, 1) {
		t.Error("an empty queue takes no long frame")
	}
	q.push(packetio.Frame{Data: make([]byte, frameBytes)})
	for _, c := range []struct {
		size, high int
		want       bool
	}{{1, 1, false}, {1, 2, true}, {frameBytes, 2, true}, {frameBytes + 1, 2, false}, {2 * frameBytes, 3, true}, {2*frameBytes + 1, 3, false}} {
		if got := q.takes(c.size, c.high); got != c.want {
			t.Errorf("%d bytes behind %d, at most %d frames: %v", c.size, frameBytes, c.high, got)
		}
	}
}

// The bytes of frames fill their memory to the last byte before it grows, also around its end.
func TestMemoryOfFramesIsFilled(t *testing.T) {
	var q fifo
	const size = frameBytes // a quarter of the memory
	push := func(n int) { q.push(packetio.Frame{Data: make([]byte, n)}) }
	push(size)
	memory := len(q.data)
	for range 3 {
		push(size)
	}
	if len(q.data) != memory || q.bytes != memory {
		t.Errorf("%d bytes in memory of %d, which had %d", q.bytes, len(q.data), memory)
	}
	for range 20 { // the place of the first one is free
		q.pop()
		if push(size); len(q.data) != memory {
			t.Fatalf("the memory has %d bytes, and had %d", len(q.data), memory)
		}
	}
	for q.n > 0 {
		q.pop()
	}
	if push(memory); len(q.data) != memory {
		t.Errorf("a frame as long as the empty memory makes it %d bytes long", len(q.data))
	}
	if push(1); len(q.data) <= memory || q.n != 2 || q.bytes != memory+1 {
		t.Errorf("one more byte: %d bytes of memory", len(q.data))
	}
}

// While there is no connection, frames wait in the switch as far as they find room. With the
// connection they go to the ring at once, if an entry fits the path MTU; when it ends, no server has
// the ring. Frames that wait leave when the program is replaced.
func TestConnectionsComeAndGo(t *testing.T) {
	const rule = "ring=ms0 rate=8Mbit high=4 low=2 entries=8 entry=2048 depth=4"
	for _, come := range []bool{true, false} {
		w := newWired(t, rule)
		for i := range 13 {
			w.send(i)
		}
		q, l := w.m.queues[0], w.m.Links.All[0]
		if q.local.n != 4 || q.tail.n != 4 || q.stats.Blocked != 4 || len(w.ops) != 0 {
			t.Fatalf("%d and %d frames wait, %+v", q.local.n, q.tail.n, q.stats)
		}
		if !come {
			w.step(w.m.Flush)
			if len(w.got) != 9 || q.waiting() != 0 {
				t.Errorf("%d frames have left, %d wait", len(w.got), q.waiting())
			}
			continue
		}
		if w.offer(1, 1024) || !strings.Contains(l.Why(), "path MTU") {
			t.Errorf("a connection for packets of 1024 bytes is used: %q", l.Why())
		}
		if !w.offer(2, 2048) || len(w.ops) != 4 || q.tail.n != 0 {
			t.Errorf("%d WRITEs, %d frames wait for the connection: %q", len(w.ops), q.tail.n, l.Why())
		}
		w.step(func(c *pipeline.Ctx) { w.m.Detach(c, l.Key(), 2) })
		if l.Up() || l.Writes() != 0 || l.Reads() || l.Carrier.Up() {
			t.Error("the connection is still used")
		}
	}
}

// A ring that moves to another server needs no connection to the former one.
func TestRingMoves(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit")
	former := b.machines[0].Links.All[0]
	b.rule("ring=ms1 rate=8Mbit")
	links := b.machines[0].Links.All
	if former.Needed() || !slices.ContainsFunc(links, (*Link).Needed) {
		t.Errorf("the former server is needed: %v; %d connections", former.Needed(), len(links))
	}
}

// The switch measures how many bytes of frames go to the ring and come back, and how long that takes:
// until the last WRITE is acknowledged, and from the first READ to the last frame. A rule with another
// rate of the port begins again.
func TestMovedBytesAreMeasured(t *testing.T) {
	const rule = "ring=ms0 high=4 low=2 entries=16 entry=2048 depth=1 "
	w := newWired(t, rule+"rate=8Kbit")
	w.attach()
	for i := range 13 {
		w.now = w.now.Add(time.Millisecond)
		w.send(i)
	}
	bytes := uint64(8 * len(frameOf(0)))
	if i := w.m.list(w.now)[0]; i.Stored != 8 || i.Stores != (Moved{bytes, 7 * time.Millisecond}) || i.Loads != (Moved{}) {
		t.Errorf("stored: %+v", i)
	}
	w.m.Links.All[0].Written(w.now.Add(time.Millisecond))
	if i := w.m.list(w.now)[0]; i.Stores != (Moved{bytes, 8 * time.Millisecond}) {
		t.Errorf("acknowledged: %+v", i)
	}
	set, err := ruleSet(t, "server=cn0 action=buffer "+rule+"rate=8Mbit")
	if err != nil {
		t.Fatal(err)
	}
	w.m.SetRules(set)
	w.run(2 * time.Second)
	// Seven frames of 1 ms lie between the second frame, which lets the first READ leave, and the last.
	if i := w.m.list(w.now)[0]; i.Loaded != 8 || i.Loads.Bytes != bytes || i.Loads.Took <= 0 || i.Loads.Took > 8*time.Millisecond || i.Stores != (Moved{}) {
		t.Errorf("loaded: %+v", i)
	}
}

// Frames come back as long as fewer than low frames wait, and fewer bytes than these may have.
func TestFewBytesWaitBeforeFramesComeBack(t *testing.T) {
	var q fifo
	for range 3 {
		if !q.below(4) {
			t.Errorf("%d frames of %d bytes: none comes back", q.n, q.bytes)
		}
		q.push(packetio.Frame{Data: make([]byte, 4*frameBytes/3+1)})
	}
	if q.below(4) || q.below(3) {
		t.Errorf("%d frames of %d bytes: others come back", q.n, q.bytes)
	}
	q.push(packetio.Frame{Data: make([]byte, 1)})
	q.push(packetio.Frame{Data: make([]byte, 2)})
	if !q.below(6) || q.below(5) || q.below(4) {
		t.Errorf("%d frames of %d bytes", q.n, q.bytes)
	}
}

// An entry may come back with any bytes behind the part of its header that names it, because a server's
// memory is not the switch's own. What is too short for a frame is lost, and nothing panics.
func TestEntriesWithAnyBytes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 82))
		w := newWired(t, "ring=ms0 rate=8Mbit high=4 low=4 entries=8 entry=2048")
		w.attach()
		for i := range 13 {
			w.send(i)
		}
		const firstMeta, size, stored = 12, 2048, 8 // tag, place and number are before it
		short := uint64(0)
		for i := range stored {
			entry := w.memory[i*size:][:size]
			switch seed % 2 {
			case 0:
				n := uint16(r.IntN(2 * framering.MinFrame))
				binary.BigEndian.PutUint16(entry[firstMeta:], n)
				if n < framering.MinFrame {
					short++
				}
			default:
				for range 1 + r.IntN(20) {
					entry[firstMeta+r.IntN(framering.HeaderLen-firstMeta)] = byte(r.Uint32())
				}
			}
		}
		w.run(time.Second)
		st := w.m.Stats()
		local, remote := w.m.Waiting()
		if st.Frames != st.Sent+st.Lost || local+remote != 0 || seed%2 == 0 && st.Lost != short {
			t.Fatalf("seed %d: %d of %d entries are too short, %d wait, %d are in the ring, %+v", seed, short, stored, local, remote, st)
		}
	}
}
