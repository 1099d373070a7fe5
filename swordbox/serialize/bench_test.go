package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// loop simulates a client and a server without NICs: the same request and its answer pass the
// switch again and again, with the PSNs that the switch expects.
type loop struct {
	r                   *rig
	req, ack            wire.Frame
	reqBuf, ackBuf      []byte
	in                  packetio.Batch
	value               uint64
	clientPSN, otherPSN wire.PSN
}

// newLoop makes a loop of the last request of a client and its answer on the server's link.
func newLoop(t testing.TB, set []rules.Rule, warm int, wr func(c *conn, i int) verbs.SendWR) *loop {
	r := newRig(t, rigConfig{clients: 1, rules: set})
	c := r.connect(0)
	l := &loop{r: r}
	var req, ack []byte
	r.tap = func(up bool, port int, data []byte) bool {
		switch {
		case up && port == 0:
			req = append(req[:0], data...)
		case up:
			ack = append(ack[:0], data...)
		}
		return true
	}
	for i := range warm {
		c.post(wr(c, i))
		r.run(time.Millisecond)
		c.done(verbs.Success)
	}
	l.req, l.ack = parse(req), parse(ack)
	l.clientPSN, l.otherPSN = l.req.BTH.PSN, l.ack.BTH.PSN
	l.value = l.req.AtomicETH.SwapOrAdd
	return l
}

// turn passes one request and its answer.
func (l *loop) turn(t testing.TB) {
	l.clientPSN, l.otherPSN = l.clientPSN.Next(), l.otherPSN.Next()
	l.r.now += 1000
	l.req.BTH.PSN, l.ack.BTH.PSN = l.clientPSN, l.otherPSN
	if l.req.BTH.Opcode == wire.RCCmpSwap {
		l.req.AtomicETH.Compare, l.req.AtomicETH.SwapOrAdd = l.value, l.value+1
		l.value++
	}
	l.pass(t, 0, &l.reqBuf, &l.req)
	l.ack.AETH.MSN++
	l.pass(t, 1, &l.ackBuf, &l.ack)
}

func (l *loop) pass(t testing.TB, port int, buf *[]byte, f *wire.Frame) {
	*buf = f.AppendTo((*buf)[:0])
	l.in.Reset()
	l.r.sw.Frame(l.r.now, port, packetio.Frame{Data: *buf}, &l.in)
	if len(l.in.Frames) != 1 || l.in.Frames[0].Port == port {
		t.Fatalf("%v: %d frames", f.BTH.Opcode, len(l.in.Frames))
	}
}

func loops(t testing.TB) map[string]*loop {
	cas := func(c *conn, i int) verbs.SendWR { return c.cas(64, uint64(i), uint64(i+1), 0) }
	write := func(c *conn, _ int) verbs.SendWR { return c.write(512, 0, 64) }
	return map[string]*loop{
		"replaced": newLoop(t, atomicsRule(1), 4, cas),
		"moved":    newLoop(t, moveRule(1), 4, write),
		"own":      newLoop(t, atomicsRule(1), 4, write),
	}
}

// Once the tables have their size, no packet allocates memory.
func TestNoAllocations(t *testing.T) {
	for name, l := range loops(t) {
		for range 300 {
			l.turn(t)
		}
		if n := testing.AllocsPerRun(2000, func() { l.turn(t) }); n != 0 {
			t.Errorf("%s: %v allocations for a request and its answer", name, n)
		}
		s := l.r.m.Stats()
		if moves := name != "own"; (s.Moved > 2000) != moves || (s.Replaced > 2000) != (name == "replaced") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// BenchmarkTurn measures a request and its answer, without the work of the NICs: replaced by a
// WRITE, moved unchanged, and left on the client's connection. "none" has a single rule, Track: the
// switch only forwards and follows the PSNs.
func BenchmarkTurn(b *testing.B) {
	all := loops(b)
	all["none"] = newLoop(b, []rules.Rule{{Server: ipOf(serverIP), Action: rules.Track}}, 4,
		func(c *conn, _ int) verbs.SendWR { return c.write(512, 0, 64) })
	for _, name := range []string{"none", "own", "moved", "replaced"} {
		l := all[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				l.turn(b)
			}
		})
	}
}

var _ pipeline.Program = (*glue)(nil)
