package packetbuffer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// memory is a carrier whose requests are executed at once. Answers of READs wait for the test.
type memory struct {
	link  *Link
	bytes map[uint64][]byte
	reads []func(b bool)
	up    bool
	full  bool // no WRITE can be sent now
}

func (k *memory) Up() bool      { return k.up }
func (k *memory) Reads() bool   { return k.up && len(k.reads) < 4 }
func (k *memory) Nonce() uint32 { return 0x1000 }
func (k *memory) Longest() int  { return 0 }

func (k *memory) Writes() int {
	if !k.up || k.full {
		return 0
	}
	return 1 << 20
}

// Write emits a frame, as a requester does, so that the bound of emitted frames holds.
func (k *memory) Write(c *pipeline.Ctx, offset uint64, b []byte) {
	k.bytes[offset] = bytes.Clone(b)
	c.Emit(&wire.Frame{}, "")
}

func (k *memory) Read(_ *pipeline.Ctx, offset uint64, _ int, e framering.Entry) {
	b := bytes.Clone(k.bytes[offset])
	k.reads = append(k.reads, func(there bool) {
		if !there {
			b = nil
		}
		k.link.Came(e, b)
	})
}

func (k *memory) Attach(*switchconn.Shared, memgrant.Grant)   { k.up = true }
func (k *memory) Packet(*pipeline.Ctx, *pipeline.Parsed) bool { return true }
func (k *memory) Tick(*pipeline.Ctx)                          {}
func (k *memory) Deadline() clock.Time                        { return clock.Never }
func (k *memory) Detach(*pipeline.Ctx) {
	k.up = false
	k.answer(false)
}

// answer answers all READs.
func (k *memory) answer(there bool) {
	list := k.reads
	k.reads = nil
	for _, f := range list {
		f(there)
	}
}

var otherKind = handler.Kind{Name: "other", Actions: []rules.Action{Buffer}, Mode: rules.Published}

// bed is a switch with a handler of each mode, which limit the port to cn0.
type bed struct {
	t          *testing.T
	sw         *pipeline.Switch
	now        clock.Time
	ports      pipeline.QueuedPorts
	machines   [2]*Machine
	servers    [2][]*memory
	generation uint32
	next       int   // number of the next frame
	got        []int // numbers of the frames that have left, in their order
}

type noProgram struct{}

func (noProgram) Spec() pipeline.Spec { return pipeline.Spec{} }

func (noProgram) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (noProgram) Tick(*pipeline.Ctx)                                      {}
func (noProgram) Deadline() clock.Time                                    { return clock.Never }

const portOfHost = 1

func newBed(t *testing.T, rule string) *bed {
	t.Helper()
	b := &bed{t: t, now: clock.Time(time.Second)}
	var err error
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 3, Program: noProgram{}}); err != nil {
		t.Fatal(err)
	}
	for i, kind := range []*handler.Kind{&Kind, &otherKind} {
		b.machines[i] = New(Config{
			Kind: kind, Port: func(netip.Addr) int { return portOfHost }, Trusting: i == 1,
			Carrier: func(l *Link, _ uint32) Carrier {
				k := &memory{link: l, bytes: make(map[uint64][]byte)}
				b.servers[i] = append(b.servers[i], k)
				return k
			},
		})
		b.machines[i].MarkIn(&b.ports)
	}
	b.rule(rule)
	return b
}

// rule replaces the rules by one for cn0, "": none, and connects the switch to its servers.
func (b *bed) rule(text string) {
	b.t.Helper()
	set := &rules.Set{}
	if text != "" {
		var err error
		if set, err = ruleSet(b.t, "server=cn0 action=buffer "+text); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, m := range b.machines {
		m.SetRules(set)
	}
	for _, m := range b.machines {
		for _, l := range slices.Clone(m.Links.All) {
			if l.Needed() && !l.Connected() {
				b.attach(m, l, 1<<20)
			}
		}
	}
}

// attach offers a connection to a server with size bytes of memory.
func (b *bed) attach(m *Machine, l *Link, size int) bool {
	g := memgrant.Grant{Region: memgrant.Region{Len: size}}
	b.generation++
	s := switchconn.Shared{
		Key: l.Key(), Generation: b.generation, OwnQPN: wire.QPN(0x10 + b.generation), MTU: 4096,
		Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	ok := false
	b.step(func(c *pipeline.Ctx) { ok = m.Attach(c, s) })
	return ok
}

// step runs a step, and records the frames that leave to cn0. The sums must hold after it.
func (b *bed) step(f func(c *pipeline.Ctx)) {
	b.t.Helper()
	var out packetio.Batch
	b.sw.Step(b.now, &out, f)
	for _, x := range out.Frames {
		if x.Port == portOfHost && len(x.Data) >= 18 && x.Data[0] == 2 {
			b.got = append(b.got, int(binary.BigEndian.Uint32(x.Data[14:])))
		}
	}
	var s Stats
	local, remote := 0, 0
	for _, m := range b.machines {
		one := m.Stats()
		metrics.Add(&s, one)
		l, r := m.Waiting()
		local, remote = local+l, remote+r
	}
	if s.Frames != s.Sent+s.Lost+s.Full+s.Blocked+s.Long+s.Down+uint64(local+remote) {
		b.t.Fatalf("%+v, %d wait, %d in rings", s, local, remote)
	}
	drops := make(map[pipeline.Reason]uint64)
	for i := range 3 {
		for r, n := range b.sw.Port(i).Drops {
			drops[r] += n
		}
	}
	if drops[ReasonFull] != s.Full || drops[ReasonBlocked] != s.Blocked || drops[ReasonLong] != s.Long {
		b.t.Fatalf("dropped by reason at the ports: %v, want those of %+v", drops, s)
	}
}

// send hands n frames of size bytes to the handlers, as frames that leave to cn0.
func (b *bed) send(n, size int) {
	b.t.Helper()
	for range n {
		f := make([]byte, size)
		f[0], f[13] = 2, 1
		binary.BigEndian.PutUint32(f[14:], uint32(b.next))
		b.step(func(c *pipeline.Ctx) {
			for _, m := range b.machines {
				if m.Queue(c, portOfHost, packetio.Frame{Data: f}) {
					return
				}
			}
			c.Transmit(portOfHost, packetio.Frame{Data: f}, "")
		})
		b.next++
	}
}

// run lets d pass, and calls the handlers at their deadlines. Servers answer READs at once.
func (b *bed) run(d time.Duration) {
	b.t.Helper()
	end := b.now.Add(d)
	for range 10_000 {
		b.answer()
		at := clock.Min(b.machines[0].Deadline(), b.machines[1].Deadline())
		if at > end {
			b.now = end
			return
		}
		b.now = max(b.now, at)
		b.tick()
	}
	b.t.Fatal("a deadline is always in the past")
}

func (b *bed) tick() {
	b.step(func(c *pipeline.Ctx) {
		for _, m := range b.machines {
			if m.Deadline() <= c.Now {
				m.Tick(c)
			}
		}
	})
}

// answer lets the servers answer.
func (b *bed) answer() {
	for i, m := range b.machines {
		for _, k := range b.servers[i] {
			for len(k.reads) > 0 {
				b.step(func(c *pipeline.Ctx) {
					k.answer(true)
					m.after(c, k.link.queue)
				})
			}
		}
	}
}

// count returns the sum of a counter over both handlers.
func (b *bed) count(of func(s *Stats) uint64) (n uint64) {
	for _, m := range b.machines {
		s := m.Stats()
		n += of(&s)
	}
	return n
}

// want checks which frames have left: all of the first n, in their order.
func (b *bed) want(what string, n int) {
	b.t.Helper()
	for i, x := range b.got {
		if i != x {
			b.t.Fatalf("%s: frame %d leaves in place %d: %v", what, x, i, b.got)
		}
	}
	if len(b.got) != n {
		b.t.Fatalf("%s: %d frames have left, want %d", what, len(b.got), n)
	}
}

// A rule that gets another mode, and back, while frames wait loses none and keeps their order. The
// former queue goes when it is empty, although nothing else happens.
func TestModeChanges(t *testing.T) {
	const layout = "ring=ms0 rate=8Mbit high=8 low=4 entries=64 "
	for _, first := range []string{"hardened", "published"} {
		other := map[string]string{"hardened": "published", "published": "hardened"}[first]
		for _, most := range []int{0, 1, 3, 9, 100} { // frames that leave between the changes
			b := newBed(t, layout+"mode="+first)
			b.send(30, 1000)
			pause := time.Duration(most) * time.Millisecond // a frame takes 1 ms
			for _, mode := range []string{other, first, other} {
				b.run(pause)
				b.rule(layout + "mode=" + mode)
				b.send(5, 1000)
			}
			b.run(time.Second)
			b.want(fmt.Sprintf("from %s, with %d frames between", first, most), 45)
			if len(b.machines[0].queues)+len(b.machines[1].queues) != 1 {
				t.Errorf("from %s: a queue without rule is left", first)
			}
			b.rule("")
			b.run(0)
			if b.send(1, 1000); b.ports.Has(portOfHost) || len(b.got) != 46 {
				t.Errorf("from %s: the port has a queue without a rule", first)
			}
		}
	}
}

// The former queue of a port keeps the port's rate if another queue is behind it. Without one, its
// frames leave at once.
func TestFormerQueueKeepsTheRate(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=64")
	b.send(20, 1000)
	b.rule("ring=ms0 rate=8Mbit high=64 mode=published")
	b.run(5 * time.Millisecond)
	b.want("with another mode", 6)
	b.rule("")
	b.run(0)
	b.want("without a rule", 20)
}

// A new rate holds for the rest of the frame that is leaving, too: a long frame of the former rate does
// not block the port.
func TestANewRateHoldsAtOnce(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Kbit high=64")
	b.send(2, 1000)
	b.run(500 * time.Millisecond)
	b.want("at 8 Kbit", 1)
	b.rule("ring=ms0 rate=8Mbit high=64")
	b.run(499 * time.Microsecond)
	b.want("at 8 Mbit, too early", 1)
	b.run(2 * time.Microsecond)
	b.want("at 8 Mbit", 2)
	b.rule("ring=ms0 rate=8Kbit high=64")
	b.send(1, 1000)
	b.run(900 * time.Millisecond)
	b.want("at 8 Kbit again", 2)
	b.run(200 * time.Millisecond)
	b.want("at 8 Kbit again", 3)

	// The same if no frame waits at the time of the change.
	b.rule("ring=ms0 rate=8Mbit high=64")
	b.run(2 * time.Second)
	b.send(1, 1000)
	b.run(500 * time.Microsecond)
	b.rule("ring=ms0 rate=8Kbit high=64")
	b.run(time.Millisecond)
	b.send(1, 1000)
	b.run(400 * time.Millisecond)
	b.want("at 8 Kbit, before its time", 4)
	b.run(200 * time.Millisecond)
	b.want("at 8 Kbit, at its time", 5)
}

// The queue of a rule that has gone goes with its last frame, although no deadline follows.
func TestFormerQueueGoesWithItsLastFrame(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=1 low=1 entries=64")
	b.send(5, 1000)
	b.rule("")
	b.tick()
	for range 5 {
		b.answer()
	}
	if b.want("without a rule", 5); b.ports.Has(portOfHost) || len(b.machines[0].queues) != 0 {
		t.Error("the queue is left")
	}
}

// While frames of the former mode are left, the new mode's queue stores none, because its ring may
// have the memory of the former one. It drops what finds no room, and counts it.
func TestNewQueueWaitsForTheFormerRing(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=4 low=4 entries=64")
	b.send(20, 1000)
	b.rule("ring=ms0 rate=8Mbit high=4 low=4 entries=64 mode=published")
	b.send(10, 1000)
	if n := len(b.servers[1][0].bytes); n != 0 || b.count(func(s *Stats) uint64 { return s.Blocked }) != 2 {
		t.Errorf("%d entries written, %+v", n, b.machines[1].Stats())
	}
	b.run(time.Second)
	b.want("both modes", 28)
}

// While frames of a rule that has gone are in a ring, the queue of another port whose ring has the
// same memory stores none. Afterwards it does. No frame is lost or takes the place of another one.
func TestRingOfAnotherPortIsTakenOver(t *testing.T) {
	const layout = " rate=8Mbit high=4 low=4 entries=64"
	cn1 := netip.MustParseAddr("10.0.0.2")
	for name, tc := range map[string]struct {
		ring string
		wait bool
	}{
		"the same ring": {"ring=ms0", true}, "a part of it": {"ring=ms0 offset=0x800", true},
		"behind it": {"ring=ms0 offset=0x20000", false}, "of another service": {"ring=ms0 service=other", false},
	} {
		b := newBed(t, "")
		bytes := make(map[uint64][]byte)
		b.machines[0] = New(Config{
			Kind: &Kind,
			Port: func(a netip.Addr) int {
				if a == cn1 {
					return portOfHost + 1
				}
				return portOfHost
			},
			Carrier: func(l *Link, _ uint32) Carrier {
				k := &memory{link: l, bytes: bytes}
				if !tc.wait {
					k.bytes = make(map[uint64][]byte)
				}
				b.servers[0] = append(b.servers[0], k)
				return k
			},
		})
		m := b.machines[0]
		m.MarkIn(&b.ports)
		use := func(text string) {
			set, err := ruleSet(t, text)
			if err != nil {
				t.Fatal(err)
			}
			m.SetRules(set)
			for _, l := range slices.Clone(m.Links.All) {
				if l.Needed() && !l.Connected() {
					b.attach(m, l, 1<<20)
				}
			}
		}
		send := func(n int) {
			for range n {
				f := make([]byte, 1000)
				f[0], f[13] = 2, 1
				b.step(func(c *pipeline.Ctx) { m.Queue(c, portOfHost+1, packetio.Frame{Data: f}) })
			}
		}
		use("server=cn0 action=buffer ring=ms0" + layout)
		b.send(20, 1000)
		stored := m.Stats().Stored
		use("server=cn1 action=buffer " + tc.ring + layout)
		send(12)
		if s := m.Stats(); (s.Stored == stored) != tc.wait || (s.Blocked > 0) != tc.wait || stored == 0 {
			t.Errorf("%s: %+v, %d before", name, s, stored)
		}
		b.run(time.Second)
		b.want(name, 20)
		stored = m.Stats().Stored
		send(12)
		b.run(time.Second)
		if s := m.Stats(); s.Stored == stored || s.Lost != 0 || s.Frames != s.Sent+s.Blocked || len(m.queues) != 1 {
			t.Errorf("%s: %+v, %d queues", name, s, len(m.queues))
		}
	}
}

// Frames that leave when the program is replaced leave in their order, too, and those in the switch
// come to the port before anything that follows.
func TestFlushBeginsWithTheFormerQueue(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=64 mode=published")
	b.send(5, 1000)
	b.rule("ring=ms0 rate=8Mbit high=64")
	b.send(5, 1000)
	for range b.machines {
		for _, m := range b.machines {
			b.step(m.Flush)
		}
	}
	if b.want("flushed", 10); b.ports.Has(portOfHost) {
		t.Error("a queue is left")
	}
}

// A ring that does not fit the server's memory is not used; frames wait in the switch as far as they
// find room. It is used when the rule is corrected.
func TestRingThatDoesNotFit(t *testing.T) {
	const layout = "ring=ms0 rate=8Mbit high=4 low=4 "
	b := newBed(t, layout+"entries=8")
	b.rule(layout + "entries=8192")
	m, k := b.machines[0], b.servers[0][0]
	b.send(12, 1000)
	if i := m.list(0); len(k.bytes) != 0 || i[0].Ring[0].Up || i[0].Ring[0].Why == "" {
		t.Errorf("%d entries are written: %+v", len(k.bytes), i)
	}
	b.run(time.Second)
	if l := m.Links.All[0]; b.attach(m, l, 1<<20) || b.attach(m, l, 1<<24) == false || !l.Up() {
		t.Errorf("a connection to a smaller or larger memory: %q", l.Why())
	}
	b.rule(layout + "entries=16384")
	b.rule(layout + "entries=8")
	b.send(12, 1000)
	if len(k.bytes) == 0 || !m.list(0)[0].Ring[0].Up {
		t.Errorf("the rule was corrected: %+v", m.list(0))
	}
	b.run(time.Second)
	if st := m.Stats(); st.Lost != 0 || st.Stored == 0 {
		t.Errorf("%+v", st)
	}
}

// Frames behind the ring leave although the ring was replaced by an empty one and nothing else
// arrives.
func TestTailLeavesAfterAChangeOfTheRing(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=4 low=4 entries=16")
	b.send(12, 1000) // one leaves, four wait, seven are in the ring
	b.servers[0][0].full = true
	b.send(3, 1000)
	for range 5 {
		b.now = b.now.Add(10 * time.Millisecond)
		b.tick()
	}
	if q := b.machines[0].queues[0]; q.local.n != 0 || q.tail.n != 3 || q.empty() {
		t.Errorf("%d and %d frames wait", q.local.n, q.tail.n)
	}
	b.servers[0][0].reads = nil // a published handler waits for ever for the answer of a lost READ
	b.rule("ring=ms0 rate=8Mbit high=4 low=4 entries=32")
	if b.run(time.Second); !slices.Equal(b.got, []int{0, 1, 2, 3, 4, 12, 13, 14}) {
		t.Errorf("%v; %+v", b.got, b.machines[0].Stats())
	}
}

// The switch sends only so many packets in a step. Frames beyond that are stored in the next one.
func TestStoresNoMoreThanAStepCanSend(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Kbit high=4000 low=1 entries=8000 entry=512 offset=0")
	m, k := b.machines[0], b.servers[0][0]
	k.up = false
	b.rule("ring=ms0 rate=8Kbit high=3000 low=1 entries=2000 entry=512")
	k.up = false
	b.send(3001, 100)
	b.send(2500, 100)
	k.up = true
	before, _ := b.sw.Counters()
	b.step(func(c *pipeline.Ctx) { m.after(c, m.queues[0]) })
	first := len(k.bytes)
	b.run(0)
	after, _ := b.sw.Counters()
	if n := after.Emitted - before.Emitted; first < 500 || first > 1024 || len(k.bytes) != 2000 || n != 2000 {
		t.Errorf("%d entries are written in a step, %d in all, %d packets left; %+v", first, len(k.bytes), n, m.Stats())
	}
}

// A frame whose port is down when its turn comes is counted as that.
func TestPortIsDown(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=8 entries=64")
	b.send(20, 1000)
	b.sw.SetPort(portOfHost, false)
	b.run(10 * time.Millisecond)
	b.sw.SetPort(portOfHost, true)
	b.run(time.Second)
	if s := b.machines[0].Stats(); s.Down < 9 || s.Down > 11 || s.Sent+s.Down != 20 || int(s.Sent) != len(b.got) {
		t.Errorf("%+v, %d have left", s, len(b.got))
	}
}

// Frames that wait in the switch are bounded in bytes, too, but one frame always finds room.
func TestWaitingBytesAreBounded(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Kbit high=4 low=4 entries=64 entry=4096")
	b.servers[0][0].up = false
	b.send(200, 60_000)
	q := b.machines[0].queues[0]
	if q.local.n != 1 || q.tail.n != 1 || q.stats.Blocked != 197 || len(q.local.data)+len(q.tail.data) > 4*60_000 {
		t.Errorf("%d and %d frames wait in %d and %d bytes, %+v", q.local.n, q.tail.n, len(q.local.data), len(q.tail.data), q.stats)
	}
	b.send(100, 100)
	if q.local.bytes+q.tail.bytes > 120_000 {
		t.Errorf("%d bytes wait", q.local.bytes+q.tail.bytes)
	}
}
