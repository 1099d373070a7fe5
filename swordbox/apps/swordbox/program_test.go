package swordbox_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// drops returns how many packets of a host were dropped for a reason.
func (b *bench) drops(port int, r pipeline.Reason) uint64 { return b.sw.Port(port).Drops[r] }

// damaged sends a packet in which one bit is wrong, and returns how many packets leave.
func (b *bench) damaged(port int, f *wire.Frame) int {
	b.now = b.now.Add(time.Microsecond)
	data := f.AppendTo(nil)
	data[len(data)-6] ^= 1 // in the payload, or in a field that the switch does not use
	b.out.Reset()
	b.sw.Frame(b.now, port, packetio.Frame{Data: data}, &b.out)
	return len(b.out.Frames)
}

// Hole 39: an operation of an unknown opcode does not reach a server whose words the switch may
// know; others get it.
func TestUnknownOperation(t *testing.T) {
	for _, m := range []rules.Mode{rules.Hardened, rules.Published} {
		b, _ := ruled(t, m)
		reserved := benchFrame(1, benchServer, benchQP(-1), 0x19, 0)
		stranger := benchFrame(2, benchServer, 0x777, 0x19, 0)
		elsewhere := benchFrame(1, 3, 0x777, 0x19, 0)
		left := 0
		for _, f := range []*wire.Frame{reserved, stranger, elsewhere} {
			left += len(b.frame(int(f.IPv4.Src[3])-10, f))
		}
		dropped := b.drops(1, swordbox.ReasonUnknown) + b.drops(2, swordbox.ReasonUnknown)
		if want := map[rules.Mode]int{rules.Hardened: 1, rules.Published: 3}[m]; left != want || dropped != uint64(3-want) {
			t.Errorf("%v: %d left, %d dropped", m, left, dropped)
		}
	}
}

// A packet with the addresses of a flow under a rule that does not belong to the flow is dropped
// with a reason: it came from another port, answers no request, is damaged, or the flow has ended.
func TestRefusals(t *testing.T) {
	b, p := ruled(t, rules.Hardened)
	send := func(psn wire.PSN) *wire.Frame { return benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, psn) }
	if n := len(b.frame(1, send(0))); n != 1 {
		t.Fatalf("%d packets left", n)
	}
	if n := len(b.frame(2, send(1))); n != 0 || b.drops(2, swordbox.ReasonSpoofed) != 1 {
		t.Errorf("from another port: %d left, %v", n, b.sw.Port(2).Drops)
	}
	if n := b.damaged(1, send(1)); n != 0 || b.drops(1, pipeline.ReasonBadICRC) != 1 {
		t.Errorf("damaged: %d left, %v", n, b.sw.Port(1).Drops)
	}
	p.Connections().Known(send(1)).State = conntrack.Closed
	if n := len(b.frame(1, send(1))); n != 0 || b.drops(1, swordbox.ReasonQuarantined) != 1 {
		t.Errorf("after the end: %d left, %v", n, b.sw.Port(1).Drops)
	}
}

// Rules that change at run time apply to existing flows. Without rules, no packet is checked or
// refused.
func TestRulesChange(t *testing.T) {
	b, p := ruled(t, rules.Hardened)
	spoofed := benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, 1)
	b.frame(1, benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, 0))
	if n := len(b.frame(2, spoofed)); n != 0 {
		t.Errorf("under a rule: %d left", n)
	}
	set := p.Rules()
	empty, err := rules.NewSet(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetRules(empty); err != nil {
		t.Fatal(err)
	}
	if n := len(b.frame(2, spoofed)); n != 1 {
		t.Errorf("without a rule: %d left", n)
	}
	if err := p.SetRules(set); err != nil {
		t.Fatal(err)
	}
	if n := len(b.frame(2, spoofed)); n != 0 {
		t.Errorf("under a rule again: %d left", n)
	}
}

// minder is a machine that drops the requests of flows from which it has moved nothing.
type minder struct {
	*serialize.Machine
	draining bool
	seen     int
}

func (m *minder) Draining() bool { return m.draining }

func (m *minder) Bypass(_ *pipeline.Ctx, _ *conntrack.Flow, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode.Service() != wire.ServiceRC {
		return pipeline.Forward() // these frames announce the connections
	}
	m.seen++
	return pipeline.Drop(serialize.ReasonBusy)
}

// A machine with requests in flight to a server without rules may drop other flows' requests to it,
// also in super-frames. Once its requests are answered, it does not get these flows any more.
func TestDrainingMachineIsAsked(t *testing.T) {
	m := &minder{Machine: serialize.New(serialize.Config{}), draining: true}
	p := swordbox.New(swordbox.Config{Handlers: []handler.Handler{m}, Track: conntrack.Config{Settle: -1}})
	b := newBench(t, p)
	request := func(psn wire.PSN) *wire.Frame { return benchFrame(1, benchServer, benchQP(-1), wire.RCWriteOnly, psn) }
	if n := len(b.frame(1, request(0))); n != 0 || m.seen != 1 || b.drops(1, serialize.ReasonBusy) != 1 {
		t.Errorf("draining: %d left, %d shown", n, m.seen)
	}
	var round [roundPackets]shot
	supers(8)(round[:], 0)
	b.play(round[:2])
	before := m.seen
	if m.draining = false; before < 8 {
		t.Errorf("draining: %d shown of a super-frame", before-1)
	}
	if n := len(b.frame(1, request(0))); n != 1 || m.seen != before {
		t.Errorf("drained: %d left, %d shown", n, m.seen-before)
	}
}

// Once tables have their size, no packet allocates memory: tracked, of a flow under a rule, or
// replaced.
func TestNothingIsAllocated(t *testing.T) {
	type setup struct {
		b    *bench
		load loader
	}
	cases := map[string]func() setup{
		"tracked": func() setup { return setup{tracker(t), each(writes(benchClients, 64))} },
		"supers":  func() setup { return setup{tracker(t), supers(8)} },
	}
	cases["counted"] = func() setup {
		b, _ := counter(t)
		return setup{b, each(writes(benchClients, 64))}
	}
	for _, m := range []rules.Mode{rules.Hardened, rules.Published} {
		cases["unmoved "+m.String()] = func() setup {
			b, _ := ruled(t, m)
			return setup{b, each(writes(1, 64))}
		}
		cases["replaced "+m.String()] = func() setup {
			b, p := ruled(t, m)
			return setup{b, each(b.atomics(b.warm(), p))}
		}
	}
	for name, make := range cases {
		s := make()
		const filling, tries = 10, 3
		var rounds [filling + 2*tries][roundPackets]shot // the first packets fill tables and rings
		for i := range rounds {
			s.load(rounds[i][:], i)
		}
		for i := range filling {
			s.b.play(rounds[i][:])
		}
		i, least := filling, 1e9 // the runtime allocates now and then, so the smallest result of several tries counts
		for range tries {
			least = min(least, testing.AllocsPerRun(1, func() { s.b.play(rounds[i][:]); i++ }))
		}
		if least != 0 {
			t.Errorf("%s: %v allocations in %d packets", name, least, roundPackets)
		}
	}
}

// The first request of a connection after a change of rules arrives damaged. The switch does not
// use its contents: the client's retransmission is not taken for another request with the same PSN,
// and goes to the server.
func TestDamagedRequestAfterAChangeOfRules(t *testing.T) {
	p := swordbox.New(swordbox.Config{
		Own: own(t), Track: conntrack.Config{Settle: -1}, Handlers: []handler.Handler{serialize.New(serialize.Config{})},
	})
	b := newBench(t, p)
	for i := range 2 {
		f := faa(i)
		b.frame(1, f)
		answer := benchFrame(benchServer, 1, benchQP(1), wire.RCAtomicAck, f.BTH.PSN)
		answer.AETH.MSN = uint32(i + 1)
		b.frame(benchServer, answer)
	}
	set, err := rules.NewSet([]rules.Rule{{Server: benchIP(benchServer), Action: rules.Atomics}})
	if err == nil {
		err = p.SetRules(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	good := faa(2)
	b.damaged(1, good)
	if n := len(b.frame(1, good)); n != 1 {
		t.Errorf("%d packets left for the retransmission", n)
	}
}

// A flow that returns to a handler after changes of rules has one entry in the journal. A second
// entry would remain after the flow, and a later incarnation of the switch would refuse any
// connection with the same numbers.
func TestFlowIsRecordedOnce(t *testing.T) {
	rec, err := journal.Open(make([]byte, journal.Size))
	if err != nil {
		t.Fatal(err)
	}
	d, err := switchconn.New(switchconn.Config{
		MAC: benchMAC(benchSwitch), IPv4: benchIP(benchSwitch), Rand: rand.New(rand.NewPCG(1, 1)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	o := swordbox.NewOwn(d, rec)
	flow := &conntrack.Flow{ID: 3, Generation: 7}
	flow.Requester, flow.Responder, flow.ReqQPN, flow.RespQPN = benchIP(1), benchIP(benchServer), benchQP(1), benchQP(-1)
	first, again := o.Moving(flow), o.Moving(flow)
	if !first || !again || rec.Stats().Flows != 1 {
		t.Errorf("%d records", rec.Stats().Flows)
	}
}
