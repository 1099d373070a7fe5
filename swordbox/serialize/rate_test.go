package serialize

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// testRate is the line rate of the switch's rates in these tests, in bits a second.
const testRate = 10_000_000_000

// paced is a rig whose switch paces the requests of its clients, and what has reached the server.
type paced struct {
	*rig
	conns []*conn
	sent  []pacedFrame
}

type pacedFrame struct {
	at    clock.Time
	psn   wire.PSN
	bytes int
	value byte // the first byte of the payload: the client
}

func newPaced(t *testing.T, slow rules.Slowed, clients int) *paced {
	p := newPacedAt(t, slow, clients, clients, testRate)
	r := p.rig
	for i, c := range p.conns {
		for k := range c.n.buf {
			c.n.buf[k] = byte(i + 1)
		}
	}
	r.run(10 * time.Millisecond) // so that the pacers owe nothing
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.BTH.Opcode == wire.RCWriteOnly {
			p.sent = append(p.sent, pacedFrame{r.now, f.BTH.PSN, len(data) + fcs, f.Payload[0]})
		}
		if f := parse(data); !up && port < clients && f.BTH.Opcode == wire.CNP {
			t.Errorf("the switch has notified client %d", port)
		}
		return true
	}
	return p
}

// writes posts n WRITEs of a client.
func (p *paced) writes(client, n, bytes int) {
	for range n {
		p.conns[client].post(p.conns[client].write(0, 0, bytes))
	}
}

// cnp is a notification of the server, which the switch gets a moment later.
func (p *paced) cnp() {
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(serverIP), Dst: macOf(switchIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(serverIP).As4(), Dst: ipOf(switchIP).As4(), TTL: 64}
	f.BTH = wire.BTH{Opcode: wire.CNP, DestQP: p.m.servers[0].links[0].ownQPN, BECN: true}
	p.launch(true, p.server.port, f.AppendTo(nil), false)
}

// rate returns the rate at which the frames of a client, or of all (0), have left since a time.
func (p *paced) rate(value byte, since clock.Time) float64 {
	var first, last clock.Time
	bytes, size := 0, 0
	for _, f := range p.sent {
		if f.at < since || value != 0 && f.value != value {
			continue
		}
		if bytes == 0 {
			first = f.at
		}
		last, size = f.at, f.bytes
		bytes += f.bytes
	}
	return float64(bytes-size) * 8 / last.Sub(first).Seconds()
}

// With one rate for the connection, all clients together send at it, and take turns by bytes: a client of short
// WRITEs gets as many bytes as one of long ones. A notification halves the rate.
func TestRateOfASharedConnection(t *testing.T) {
	p := newPaced(t, rules.SlowConnection, 2)
	start := p.now
	p.writes(0, 60, 900)
	p.writes(1, 60, 300)
	p.run(30 * time.Microsecond)
	if got := p.rate(0, start); math.Abs(got/testRate-1) > 0.02 {
		t.Errorf("the connection sends at %.0f bit/s", got)
	}
	var bytes [3]int
	for _, f := range p.sent {
		bytes[f.value] += f.bytes
	}
	if bytes[1] == 0 || bytes[2] == 0 || math.Abs(float64(bytes[1]-bytes[2])) > float64(2*p.m.servers[0].links[0].turnBytes()) {
		t.Errorf("in %v the clients have sent %d and %d bytes", p.now.Sub(start), bytes[1], bytes[2])
	}
	p.cnp()
	p.run(2 * time.Microsecond)
	since := p.now
	p.run(20 * time.Microsecond)
	if got := p.rate(0, since); math.Abs(got/(testRate/2)-1) > 0.25 {
		t.Errorf("after a notification the connection sends at %.0f bit/s", got)
	}
	if s := p.m.Stats(); p.m.slowed != 1 || s.CNPs != 0 {
		t.Errorf("slowed %d times, %d notifications", p.m.slowed, s.CNPs)
	}
	p.run(20 * time.Millisecond)
	p.conns[0].allSucceed(60)
	p.conns[1].allSucceed(60)
}

// With a rate for each client, the one whose packet was marked slows down at the server's notification (flow) or at
// once (queue), and the other does not.
func TestRateOfAClient(t *testing.T) {
	for _, slow := range []rules.Slowed{rules.SlowFlow, rules.SlowQueue} {
		t.Run(slow.String(), func(t *testing.T) {
			p := newPaced(t, slow, 2)
			start := p.now
			p.writes(0, 100, 500)
			p.writes(1, 100, 500)
			p.run(20 * time.Microsecond)
			for _, who := range []byte{1, 2} {
				if got := p.rate(who, start); math.Abs(got/testRate-1) > 0.05 {
					t.Errorf("client %d sends at %.0f bit/s", who, got)
				}
			}
			last := len(p.sent) - 1
			for p.sent[last].value != 1 {
				last--
			}
			f := wire.Frame{}
			f.IPv4 = wire.IPv4{Src: ipOf(switchIP).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
			f.BTH = wire.BTH{Opcode: wire.RCWriteOnly, DestQP: p.m.servers[0].links[0].conn.Link().To.DestQP, PSN: p.sent[last].psn}
			p.m.Marked(p.now, &f)
			if at := p.m.slowed; at != map[rules.Slowed]uint64{rules.SlowQueue: 1}[slow] {
				t.Errorf("a mark has lowered %d rates", at)
			}
			p.cnp()
			p.run(4 * time.Microsecond)
			since := p.now
			p.run(20 * time.Microsecond)
			if got := p.rate(1, since); math.Abs(got/(testRate/2)-1) > 0.25 {
				t.Errorf("the marked client sends at %.0f bit/s", got)
			}
			if got := p.rate(2, since); math.Abs(got/testRate-1) > 0.05 {
				t.Errorf("the other client sends at %.0f bit/s", got)
			}
			if s := p.m.Stats(); p.m.slowed != 1 || s.CNPs != 0 {
				t.Errorf("slowed %d times, %d notifications", p.m.slowed, s.CNPs)
			}
			p.run(20 * time.Millisecond)
			p.conns[0].allSucceed(100)
			p.conns[1].allSucceed(100)
		})
	}
}

// When a rule no longer says that the switch slows down, requests that waited for their time leave at once.
func TestRatesEndWithTheRule(t *testing.T) {
	p := newPaced(t, rules.SlowConnection, 1)
	p.writes(0, 100, 1000)
	p.run(20 * time.Microsecond)
	if n := len(p.sent); n > 30 || p.m.held.inUse == 0 {
		t.Fatalf("%d requests have left, %d are held", n, p.m.held.inUse)
	}
	set, err := rules.NewSet(moveRule(1))
	if err != nil {
		t.Fatal(err)
	}
	p.m.SetRules(set)
	p.run(30 * time.Microsecond)
	if n := len(p.sent); n < 90 || p.m.held.inUse != 0 {
		t.Errorf("%d requests have left, %d are held", n, p.m.held.inUse)
	}
	p.run(time.Millisecond)
	p.conns[0].done(make([]verbs.Status, 100)...)
}

// A flood of notifications, from a server that sends what no NIC sends, lowers the rate of a connection to the smallest
// and no further, allocates nothing, and ends with the flood.
func TestFloodOfNotificationsToTheSwitch(t *testing.T) {
	p := newPaced(t, rules.SlowConnection, 1)
	k := p.m.servers[0].links[0]
	k.lower(p.now)
	at := p.now
	if n := testing.AllocsPerRun(1_000_000, func() {
		at += leastApart
		k.lower(at)
	}); n != 0 {
		t.Errorf("a notification allocates %v times", n)
	}
	p.now = at
	if s := k.rate.flow.State(at); s.Rate < p.m.servers[0].rates.MinRate || s.Rate > testRate/100 {
		t.Errorf("after the flood the connection sends at %d bit/s", s.Rate)
	}
	p.writes(0, 20, 1000)
	p.run(30 * time.Millisecond)
	p.conns[0].allSucceed(20)
	if s := k.rate.flow.State(p.now); s.Rate < testRate/2 {
		t.Errorf("30 ms after the flood the connection sends at %d bit/s", s.Rate)
	}
}

// However low the rate and however many the clients are, each gets its turn before it counts as gone: no client ends
// its connection, while notifications of the server do not end.
func TestClientsOutliveTheLowestRate(t *testing.T) {
	const clients, each = 30, 16
	for _, slow := range []rules.Slowed{rules.SlowConnection, rules.SlowFlow} {
		p := newPacedAt(t, slow, clients, 1, 1_000_000)
		for i := range clients {
			p.writes(i, each, 1000)
		}
		done := 0
		for end := p.now.Add(5 * time.Second); p.now < end && done < clients*each; {
			p.cnp()
			p.run(time.Millisecond)
			for i, c := range p.conns {
				for _, wc := range c.n.poll() {
					if done++; wc.Status != verbs.Success {
						t.Fatalf("%v: client %d: %v", slow, i, wc.Status)
					}
				}
			}
		}
		if done != clients*each {
			t.Errorf("%v: %d of %d WRITEs have ended", slow, done, clients*each)
		}
	}
}

// A client with one request in flight has the share of those with many.
func TestTurnsOfShallowClients(t *testing.T) {
	const clients = 8
	p := newPacedAt(t, rules.SlowConnection, clients, 1, 1_000_000_000)
	var done [clients]int
	for i := range clients {
		p.writes(i, map[bool]int{true: 1, false: 8}[i == 0], 1000)
	}
	for end := p.now.Add(10 * time.Millisecond); p.now < end; p.run(4 * time.Microsecond) {
		for i, c := range p.conns {
			n := len(c.n.poll())
			done[i] += n
			p.writes(i, n, 1000)
		}
	}
	if done[0] < done[1]*8/10 {
		t.Errorf("%d WRITEs of the client with one at a time, of the others %v", done[0], done[1:])
	}
}

// A change of rules leaves a flow alone that has been closed, and whose last request is still in flight.
func TestRatesOfAClosedFlow(t *testing.T) {
	p := newPacedAt(t, rules.SlowAll, 1, 1, 1_000_000_000)
	c := p.conns[0]
	lose := true
	p.tap = func(up bool, port int, data []byte) bool {
		return !lose || !up || port != p.server.port || !parse(data).BTH.Opcode.Is(wire.OpResponse)
	}
	c.post(c.write(0, 0, 100))
	p.run(20 * time.Microsecond)
	l := p.sequencerOf(c)
	// A READ before it has been answered, and the client asks for it once more.
	rec := l.replies.window.add(l.conn.psns.client, wire.RCReadRequest)
	l.replies.window.finish(rec)
	l.replies.window.follow(rec, evRedoMoved)
	l.replies.redoAt = p.now.Add(l.m.cfg.RedoTime)
	l.schedule()
	p.do(func(ctx *pipeline.Ctx) { p.m.Closed(ctx, l.flow) })
	if l.out == 0 {
		t.Fatal("no request is in flight")
	}
	list := moveRule(1)
	for i := range list {
		list[i].SetSlowed(rules.SlowFlow)
	}
	set, err := rules.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	p.m.SetRules(set)
	lose = false
	p.run(100 * time.Millisecond)
	if p.m.due.Len() != 0 {
		t.Error("a deadline is left")
	}
}

// newPacedAt is a rig whose switch paces the requests of its clients at a rate, of which the first so many are proven.
func newPacedAt(t *testing.T, slow rules.Slowed, clients, proven int, bits int64) *paced {
	list := moveRule(1)
	for i := range list {
		list[i].SetSlowed(slow)
	}
	r := newRig(t, rigConfig{clients: clients, rules: list, cfg: Config{Slowing: func(netip.Addr) congestion.Config {
		p, _ := congestion.Profile(congestion.ProfilePaper, bits)
		p.Algorithm = congestion.AlgorithmNone // the switch has DCQCN, whatever the NIC has
		return congestion.Config{Params: p}
	}}})
	p := &paced{rig: r}
	for i := range clients {
		c := r.connect(i)
		if i < proven {
			c.prove(c.write(0, 0, 2000), c.write(0, 0, 8), c.write(regionLen-8, 0, 8), c.faa(0, 0, 0), c.faa(regionLen-8, 0, 0))
		}
		p.conns = append(p.conns, c)
	}
	r.run(200 * time.Millisecond)
	return p
}
