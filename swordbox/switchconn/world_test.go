package switchconn_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// program is a switch program that has only a Dialer.
type program struct {
	d       *switchconn.Dialer
	up      map[switchconn.Key]switchconn.Shared
	events  []switchconn.Event
	answers []wire.Frame // packets to queue pairs of the switch other than 1
}

func (*program) Spec() pipeline.Spec { return pipeline.Spec{Name: "dialer", Split: true, Verify: true} }

func (p *program) Packet(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if !q.Own {
		return pipeline.Forward()
	}
	if !p.d.Packet(c, &q.Frame) {
		f := q.Frame
		f.Payload = append([]byte(nil), f.Payload...)
		p.answers = append(p.answers, f)
	}
	p.drain()
	return pipeline.Consume()
}

func (p *program) Tick(c *pipeline.Ctx) {
	p.d.Tick(c)
	p.drain()
}

func (p *program) Deadline() clock.Time { return p.d.Deadline() }

func (p *program) drain() {
	for e, ok := p.d.Next(); ok; e, ok = p.d.Next() {
		p.events = append(p.events, e)
		switch e.Kind {
		case switchconn.EventUp:
			p.up[e.Shared.Key] = e.Shared
		case switchconn.EventDown:
			delete(p.up, e.Shared.Key)
		}
	}
}

const rackFile = `
name: dial
switch: {program: swordbox}
hosts:
  - {name: ms0, role: memory}
  - {name: cn0, role: compute}
`

// world is a rack in virtual time whose switch has only a Dialer.
type world struct {
	*simrack.Rack
	t      *testing.T
	p      *program
	rec    []byte
	starts int
	region verbs.MR
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	s, err := rackfile.Parse([]byte(rackFile))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rec: make([]byte, journal.Size)}
	w.Rack, err = simrack.New(s, simrack.Options{Seed: seed, Datagrams: true, Program: func(s *rackfile.Rack) (pipeline.Program, error) {
		w.starts++
		rec, err := journal.Open(w.rec)
		if err != nil {
			return nil, err
		}
		d, err := switchconn.New(switchconn.Config{
			MAC: s.Switch.MAC, IPv4: s.Switch.IPv4, IPv6: s.Switch.IPv6, Resolve: s.Neighbour, LinkMTU: s.LinkMTU,
			Rand: rand.New(rand.NewPCG(seed, uint64(w.starts))), Journal: rec,
		})
		w.p = &program{d: d, up: make(map[switchconn.Key]switchconn.Shared)}
		return w.p, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// serve starts the memory service.
func (w *world) serve() {
	h := w.Host("ms0")
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: 4096})
		if err != nil {
			w.t.Error(err)
			return
		}
		w.region = s.Region()
		if err := s.Serve(); err != nil {
			w.t.Error(err)
		}
	})
}

// settle advances the time.
func (w *world) settle(d time.Duration) {
	w.t.Helper()
	if err := w.Settle(d); err != nil {
		w.t.Fatal(err)
	}
}

// step runs an operator's command.
func (w *world) step(f func(c *pipeline.Ctx)) { w.StepSwitch(f) }

// tick calls Tick of the switch, after a Want.
func (w *world) tick() { w.step(w.p.Tick) }

func (w *world) key(shard int) switchconn.Key {
	return switchconn.Key{Server: w.Spec.Hosts[0].IPv4, Shard: shard}
}

func (w *world) want(k switchconn.Key, t switchconn.Target) {
	w.p.d.Want(k, t)
	w.tick()
}

// upNow returns the connection of a key, which must be up.
func (w *world) upNow(k switchconn.Key) switchconn.Shared {
	w.t.Helper()
	s, ok := w.p.up[k]
	if !ok {
		w.t.Fatalf("%v is not up: %v", k, w.describe())
	}
	return s
}

func (w *world) describe() (out []string) {
	for _, i := range w.p.d.List() {
		out = append(out, fmt.Sprintf("%v/%d %v %s", i.Server, i.Shard, i.State, i.Error))
	}
	return out
}

// serverConns returns how many connections the server's manager has: open and ended ones.
func (w *world) serverConns() (live, ended int) {
	g, err := w.Host("ms0").Engine().GSI()
	if err != nil {
		w.t.Fatal(err)
	}
	return g.Conns()
}

// send sends a request on a shared connection, and returns the answer that arrives within some
// time.
func (w *world) send(s switchconn.Shared, f wire.Frame) *wire.Frame {
	w.t.Helper()
	w.p.answers = nil
	op, psn, ack := f.BTH.Opcode, f.BTH.PSN, f.BTH.AckReq
	g := s.To
	g.RETH, g.AtomicETH, g.Payload = f.RETH, f.AtomicETH, f.Payload
	g.BTH.Opcode, g.BTH.PSN, g.BTH.AckReq = op, psn, ack
	w.step(func(c *pipeline.Ctx) { c.Emit(&g, "") })
	w.settle(time.Millisecond)
	if len(w.p.answers) != 1 {
		return nil
	}
	a := &w.p.answers[0]
	if a.BTH.DestQP != s.OwnQPN || a.DstAddr() != w.own(s.Server) {
		w.t.Errorf("the answer goes to %v, queue pair %#x", a.DstAddr(), uint32(a.BTH.DestQP))
	}
	return a
}

func (w *world) own(server netip.Addr) netip.Addr {
	if server.Is4() {
		return w.Spec.Switch.IPv4
	}
	return w.Spec.Switch.IPv6
}
