package switchd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// reader is a program that forwards like the plain one, and wants to see the packets.
type reader struct{ forward.Program }

func (reader) Spec() pipeline.Spec { return pipeline.Spec{Name: "reader"} }

// changer changes headers of each third packet, and checks what it is shown of the others.
type changer struct {
	forward.Program
	t testing.TB
	n int
}

func (*changer) Spec() pipeline.Spec { return pipeline.Spec{Name: "changer"} }

func (g *changer) Packet(_ *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	var f wire.Frame
	if err := wire.ParseFrame(p.Bytes(), &f); err != nil || !wire.CheckICRC(p.Bytes()) || !p.Intact() {
		g.t.Errorf("%v: %v", p.Frame, err)
	}
	shown := p.Frame
	shown.Eth.Type, shown.UDP.DstPort, shown.UDP.Length, shown.BTH.Pad, shown.ICRC = f.Eth.Type, f.UDP.DstPort, f.UDP.Length, f.BTH.Pad, f.ICRC
	shown.IPv4.TotalLen, shown.IPv4.Protocol = f.IPv4.TotalLen, f.IPv4.Protocol
	if !bytes.Equal(shown.Payload, f.Payload) {
		g.t.Errorf("shown payload %x, want %x", shown.Payload, f.Payload)
	}
	shown.Payload, f.Payload = nil, nil
	if !reflect.DeepEqual(shown, f) {
		g.t.Errorf("shown\n%+v\nwant\n%+v", shown, f)
	}
	if g.n++; g.n%3 != 0 {
		return pipeline.Forward()
	}
	p.IPv4.TTL--
	return pipeline.Rewrite()
}

// everything makes work requests of each kind and of many sizes, in both directions, one at a time, and
// checks the bytes that WRITEs and READs leave.
func (c *compact) everything(t *testing.T, rounds int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range rounds {
		for i := range c.ends {
			mine, theirs := c.ends[i].mr, c.ends[1-i].mr
			size := []int{0, 1, 2, 3, 8, 61, 4096, 4097, 9001, 65536}[(n+i)%10]
			at, to := r.IntN(1000), 1<<18+r.IntN(1000)
			data, got := make([]byte, size), make([]byte, size)
			for k := range data {
				data[k] = byte(r.Uint32())
			}
			must(t, mine.WriteAt(data, at))
			c.run(t, i, c.work(i, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled}, at, to, size))
			must(t, theirs.ReadAt(got, to))
			if !bytes.Equal(got, data) {
				t.Fatalf("a WRITE of %d bytes has left other bytes", size)
			}
			c.run(t, i, c.work(i, verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled}, 1<<19, to, size))
			must(t, mine.ReadAt(got, 1<<19))
			if !bytes.Equal(got, data) {
				t.Fatalf("a READ of %d bytes has got other bytes", size)
			}
			for _, op := range []verbs.WROpcode{verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpAtomicWrite} {
				c.run(t, i, c.work(i, verbs.SendWR{Op: op, Flags: verbs.Signalled, CompareAdd: uint64(n), Swap: r.Uint64()}, 1<<19, 1<<17, map[bool]int{true: 8}[op != verbs.OpAtomicWrite]))
			}
			must(t, c.ends[1-i].qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{c.ends[1-i].mr.SGE(1<<19, 1<<17)}}, verbs.RecvWR{}))
			c.run(t, i, c.work(i, verbs.SendWR{Op: verbs.OpSendImm, Imm: 7, Flags: verbs.Signalled | verbs.Solicited}, at, 0, size))
			c.run(t, i, c.work(i, verbs.SendWR{Op: verbs.OpWriteImm, Imm: 9, Flags: verbs.Signalled}, at, to, size))
			for range 2 {
				c.one(t, 1-i)
			}
		}
	}
}

// counted has all counters that tell what happened to packets.
func (c *compact) counted(t *testing.T) (list []string) {
	t.Helper()
	n, err := c.Counters()
	must(t, err)
	list = append(list, fmt.Sprintf("%+v %+v", n.Switch, n.Lost))
	for _, p := range n.Ports {
		p.RxRing = 0
		list = append(list, fmt.Sprintf("%+v", p))
	}
	flows, err := c.Flows()
	must(t, err)
	for _, f := range flows {
		list = append(list, fmt.Sprint(f.Src, f.Dst, f.QPN, f.Packets, f.Bytes))
	}
	slices.Sort(list[3:])
	for _, d := range c.dev {
		list = append(list, fmt.Sprintf("%+v", d.Counters()))
	}
	return list
}

// captured returns the packets that the switch has kept, with their comments.
func (c *compact) captured(t *testing.T) (list []string) {
	t.Helper()
	var file bytes.Buffer
	_, err := c.traffic.hub.Past(&file)
	must(t, err)
	in, err := pcapng.NewReader(&file)
	must(t, err)
	for {
		var p pcapng.Packet
		if err := in.Next(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %x %q", p.Name, p.Data, p.Comments))
	}
}

// begin makes the switch keep packets.
func (c *compact) begin(t *testing.T) {
	t.Helper()
	must(t, c.commands.Do(func() { c.traffic.hub.Keep(64<<20, 1<<16) }))
}

// Whether packets are encoded or not, all counters are the same, and so are captures, byte for byte, also
// if the capture begins in the middle of traffic.
func TestOpenPacketsAreTheSame(t *testing.T) {
	for name, program := range map[string]func() pipeline.Program{
		"forward":  func() pipeline.Program { return forward.Program{} },
		"changer":  func() pipeline.Program { return &changer{t: t} },
		"swordbox": func() pipeline.Program { return tracker(t) },
	} {
		run := func(open bool) (counters, packets []string) {
			p := program()
			c := newCompactWith(t, open, p, patient)
			c.everything(t, 20)
			counters = append(c.counted(t), c.tracked(t, p)...)
			c.begin(t)
			c.everything(t, 20)
			return append(append(counters, c.counted(t)...), c.tracked(t, p)...), c.captured(t)
		}
		counters, packets := run(false)
		gotCounters, gotPackets := run(true)
		if len(packets) < 1000 {
			t.Errorf("%s: %d packets were captured", name, len(packets))
		}
		if !slices.Equal(gotCounters, counters) {
			t.Errorf("%s: counters\n%s\nwant\n%s", name, strings.Join(gotCounters, "\n"), strings.Join(counters, "\n"))
		}
		for i := range min(len(packets), len(gotPackets)) {
			if gotPackets[i] != packets[i] {
				t.Fatalf("%s: packet %d is\n%s\nwant\n%s", name, i, gotPackets[i], packets[i])
			}
		}
		if len(gotPackets) != len(packets) {
			t.Errorf("%s: %d packets, want %d", name, len(gotPackets), len(packets))
		}
	}
}

// patient is a timeout code of 17 s: a retransmission, because the machine is busy, would change counters.
const patient = 22

// tracker is the program that tracks the connections to host h1.
func tracker(t testing.TB) *swordbox.Program {
	set, err := rules.NewSet([]rules.Rule{{ID: "t", Server: netip.AddrFrom4([4]byte{10, 77, 0, 2}), Action: rules.Track}})
	must(t, err)
	return swordbox.New(swordbox.Config{Rules: set, Track: conntrack.Config{Settle: -1}})
}

// tracked has the counters of the program that tracks connections.
func (c *compact) tracked(t *testing.T, p pipeline.Program) (list []string) {
	s, ok := p.(*swordbox.Program)
	if !ok {
		return nil
	}
	must(t, c.commands.Do(func() { list = append(list, fmt.Sprintf("%+v", s.Counters(0))) }))
	return list
}

// passing counts the packets that pass the switch without being encoded, until stop is called.
func (c *compact) passing(t *testing.T) (stop func() (open int)) {
	t.Helper()
	n := 0
	must(t, c.commands.Do(func() {
		leaves := c.traffic.opens.leaves
		c.traffic.opens.leaves = func(to int) bool {
			ok := leaves(to)
			if ok {
				n++
			}
			return ok
		}
	}))
	return func() (open int) {
		must(t, c.commands.Do(func() { open, c.traffic.opens.leaves = n, c.traffic.takesOpen }))
		return open
	}
}

// Packets pass without being encoded only while nothing looks at them.
func TestWhatLooksAtPackets(t *testing.T) {
	never := fault.Rule{Kind: fault.Loss, Probability: 1, Match: fault.Match{QPN: new(wire.QPN)}}
	for name, k := range map[string]struct {
		program pipeline.Program
		look    func(c *compact) error
		open    bool
	}{
		"nothing": {forward.Program{}, nil, true},
		"program": {reader{}, nil, true},
		"capture": {forward.Program{}, func(c *compact) error { c.begin(t); return nil }, false},
		"fault of the client's link": {forward.Program{}, func(c *compact) error {
			r := never
			r.Link = "h0"
			_, err := c.faults.Inject(r)
			return err
		}, false},
		"fault of the server's link, down": {forward.Program{}, func(c *compact) error {
			r := never
			r.Link, r.Dir = "h1", fault.Down
			_, err := c.faults.Inject(r)
			return err
		}, false},
	} {
		c := newCompact(t, true, k.program)
		if k.look != nil {
			must(t, k.look(c))
		}
		stop := c.passing(t)
		wr := c.work(0, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled}, 0, 0, 8)
		must(t, c.ends[0].qp.PostSend(wr))
		c.one(t, 0)
		open := stop()
		// A fault of one direction leaves the packets of the other one alone.
		if name == "fault of the server's link, down" {
			open--
		}
		if (open > 0) != k.open {
			t.Errorf("%s: %d packets were not encoded", name, open)
		}
	}
}

// Damage that a fault does is seen by the ICRC, and healed.
func TestOpenPacketsCanBeDamaged(t *testing.T) {
	for _, link := range []string{"h0", "h1"} {
		c := newCompactWith(t, true, forward.Program{}, 10)
		c.everything(t, 2)
		_, err := c.faults.Inject(fault.Rule{Link: link, Kind: fault.Corrupt, Probability: 0.05})
		must(t, err)
		c.everything(t, 12)
		var damaged uint64
		for _, d := range c.dev {
			n := d.Counters()
			damaged += n.RxIcrcErr + n.RxMalformed + n.RxNotMine + n.RxUnsupported
		}
		if damaged == 0 {
			t.Errorf("%s: no NIC has noticed damage", link)
		}
	}
}

// Nothing is lost or changed when captures, faults and programs come and go during traffic.
func TestOpenAndEncodedByTurns(t *testing.T) {
	c := newCompact(t, true, forward.Program{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			r, err := c.faults.Inject(fault.Rule{Link: "h1", Kind: fault.Duplicate, Probability: 0.2})
			if err != nil {
				t.Error(err)
				return
			}
			err = errors.Join(
				c.commands.Do(func() { c.traffic.hub.Keep(1<<20, 64) }),
				c.faults.RemoveFault(r.ID),
				c.commands.Do(func() { c.traffic.hub.Keep(0, 0) }),
				c.commands.Try(func() error {
					return c.traffic.load(&Loaded{Program: []pipeline.Program{reader{}, forward.Program{}}[n%2]})
				}),
			)
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	c.everything(t, 60)
	close(stop)
	<-stopped
	for i, d := range c.dev {
		if n := d.Counters(); n.LocalAckTimeoutErr+n.PacketSeqErr+n.RxIcrcErr+n.RxMalformed != 0 {
			t.Errorf("host %d: %d timeouts, %d sequence errors, %d damaged", i, n.LocalAckTimeoutErr, n.PacketSeqErr, n.RxIcrcErr+n.RxMalformed)
		}
	}
}

// The memory of a round in which much was encoded is not kept.
func TestScratchIsBounded(t *testing.T) {
	c := newCompact(t, true, forward.Program{})
	must(t, c.commands.Do(func() { c.traffic.scratch.Alloc(keptScratch + 1) }))
	c.everything(t, 1)
	must(t, c.commands.Do(func() {
		if n := c.traffic.scratch.Held(); n > keptScratch {
			t.Errorf("%d bytes are kept", n)
		}
	}))
}

// A stream of open packets allocates nothing.
func TestOpenPacketsAllocateNothing(t *testing.T) {
	c := newCompact(t, true, forward.Program{})
	wr := c.work(0, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled}, 0, 0, 64<<10)
	if n := testing.AllocsPerRun(200, func() { c.run(t, 0, wr) }); n > 2 {
		t.Errorf("%v allocations for a WRITE of 64 KiB", n)
	}
}

// guard starts a timer with each request, and stops it with each answer, as a program that repeats
// requests does.
type guard struct {
	forward.Program
	at clock.Time
}

func (*guard) Spec() pipeline.Spec { return pipeline.Spec{Name: "guard"} }

func (g *guard) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	g.at = clock.Never
	if p.BTH.Opcode.Is(wire.OpRequest) {
		g.at = c.Now.Add(10 * time.Second)
	}
	return pipeline.Forward()
}

func (g *guard) Deadline() clock.Time { return g.at }

func (g *guard) Tick(*pipeline.Ctx) { g.at = clock.Never }

// Timers that are started and stopped with each request do not wake the loop of the switch each time.
func TestTimersOfRequestsWakeSeldom(t *testing.T) {
	c := newCompactWith(t, true, &guard{at: clock.Never}, patient)
	const requests = 1000
	wr := c.work(0, verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled}, 0, 0, 8)
	before := c.wakes.Load()
	for range requests {
		c.run(t, 0, wr)
	}
	all := c.wakes.Load()
	if all-before > requests/10 {
		t.Errorf("%d requests have woken the loop %d times", requests, all-before)
	}
	if must(t, c.commands.Do(func() {})); c.wakes.Load() == all {
		t.Error("a command has not woken the loop, so nothing counts")
	}
}
