package meta

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// halting calls halt when the answer `at` of a memory server to a request without a connection has
// arrived: while a metadata server starts, the memory servers have then given it its number. With connects,
// it counts the connections that have been made instead.
type halting struct {
	rdmacm.Manager
	at       int
	halt     func()
	connects bool
}

func (d *halting) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	b, err := d.Manager.Dial(qp, to, service, p, private, deadline)
	var rej *rdmacm.RejectError
	if errors.As(err, &rej) && rej.Private != nil && !d.connects || err == nil && d.connects {
		if d.at--; d.at == 0 {
			d.halt()
		}
	}
	return b, err
}

// The numbers of an incarnation are used up while another metadata server takes over. That one stops when
// some memory servers have given it its number, or does not come at all. Then it goes on. The first one
// does not go on with the same number: it ends, unless the other one gets a greater number later.
func TestNumbersRunOutDuringATakeOver(t *testing.T) {
	for at := range 4 { // 0: there is no other metadata server; 3: it has asked no memory server yet
		testRollover(t, at)
	}
}

// pair is a rack with two hosts for metadata servers, md0 and md1, and two memory servers.
type pair struct {
	*simrack.Rack
	t   *testing.T
	cfg Config
}

func newPair(t *testing.T, seed uint64) *pair {
	t.Helper()
	return newPairOf(t, seed, 2)
}

// newPairOf is newPair with n memory servers.
func newPairOf(t *testing.T, seed uint64, n int) *pair {
	t.Helper()
	file, err := rackfile.Parse(fmt.Appendf(nil, "{name: t, hosts: [{name: \"md[0-1]\", role: metadata}, {name: \"ms[0-%d]\", role: memory}]}", n-1))
	if err != nil {
		t.Fatal(err)
	}
	rack, err := simrack.New(file, simrack.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rack.Close)
	r := &pair{rack, t, Config{Format: layout.Hardened, Keys: 64, Lease: time.Second, Grace: time.Second}}
	for i := range n {
		name := fmt.Sprint("ms", i)
		r.cfg.Servers = append(r.cfg.Servers, rack.Host(name).Addr())
		r.memory(name)
	}
	return r
}

// memory starts the memory service of a host.
func (r *pair) memory(name string) {
	h := r.Host(name)
	h.Go("memory", true, func(ctx verbs.Context) {
		if s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: 1 << 20}); err == nil {
			_ = s.Serve() // until the rack ends
		}
	})
}

// begin makes a metadata server on a host, and calls f with it. wrap may replace its connection manager.
func (r *pair) begin(host string, wrap func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager, f func(s *Server, rt verbs.Runtime)) {
	h := r.Host(host)
	h.Go("meta", false, func(ctx verbs.Context) {
		c, rt := r.cfg, ctx.Runtime()
		c.Context, c.Manager = ctx, wrap(h.Manager(ctx), rt)
		s, err := New(c)
		if err != nil {
			r.t.Errorf("%s: %v", host, err)
			return
		}
		f(s, rt)
	})
}

// loseMemory restarts the memory servers.
func (r *pair) loseMemory(rt verbs.Runtime) {
	for _, name := range []string{"ms0", "ms1"} {
		r.Host(name).Crash()
		r.Host(name).Restart()
		r.memory(name)
	}
	rt.Sleep(time.Millisecond)
}

func (r *pair) run() {
	r.t.Helper()
	if err := r.Run(); err != nil {
		r.t.Error(err)
	}
}

// pausing returns a wrap for begin: the metadata server stops after its request `at` that makes no
// connection, sets stopped, and goes on when again is set.
func pausing(at int, stopped, again *bool) func(rdmacm.Manager, verbs.Runtime) rdmacm.Manager {
	return func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
		return &halting{Manager: m, at: at, halt: func() { *stopped = true; await(rt, again) }}
	}
}

func unwrapped(m rdmacm.Manager, _ verbs.Runtime) rdmacm.Manager { return m }

// await waits until another thread has set a variable.
func await(rt verbs.Runtime, until *bool) {
	for d := time.Microsecond; !*until; d = min(2*d, time.Millisecond) {
		rt.Sleep(d)
	}
}

func testRollover(t *testing.T, at int) {
	r := newPair(t, 0)
	waits, again := false, false
	second := func() {
		r.begin("md1", pausing(at, &waits, &again), func(s *Server, _ verbs.Runtime) {
			if n, err := s.number(); err != nil || n>>incarnationBits != s.mem.owner {
				t.Errorf("at %d: the other metadata server gives out %#x in incarnation %d: %v", at, n, s.mem.owner, err)
			}
		})
	}
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) {
		if at == 1 || at == 2 {
			second()
			await(rt, &waits)
		}
		before := s.mem.owner
		s.pool.nextID = s.pool.endID - 1
		n, err := s.number()
		again = true
		if at == 0 || at == 3 {
			if err != nil || n != (before+1)<<incarnationBits+1 {
				t.Errorf("at %d: number %#x after incarnation %d: %v", at, n, before, err)
			}
			if at == 0 {
				return
			}
			second()
			rt.Sleep(time.Second)
			s.pool.nextID = s.pool.endID - 1
			_, err = s.number()
		}
		if err == nil {
			t.Errorf("at %d: the first metadata server goes on in incarnation %d", at, s.mem.owner)
		}
		if !s.mem.deposed {
			t.Errorf("at %d: the first metadata server is not deposed: %v", at, err)
		}
	})
	r.run()
}

// mute makes the answers to requests of one kind get lost, and counts these requests.
type mute struct {
	rdmacm.Manager
	kind string // how such a request begins
	lose bool
	n    int
}

func (d *mute) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	b, err := d.Manager.Dial(qp, to, service, p, private, deadline)
	if !strings.HasPrefix(string(private), d.kind) {
		return b, err
	}
	if d.n++; d.lose {
		return nil, verbs.ErrTimeout
	}
	return b, err
}

// How requests of the memory service begin.
const (
	who     = "\x01\x04"
	reserve = "\x01\x0c"
)

// As in TestNumbersRunOutDuringATakeOver, but the first metadata server gets no answer to the question of
// whether it was deposed. When the other one serves, the first one cannot write any more.
func TestNoAnswerAfterTheNumbersRanOut(t *testing.T) {
	for at := 1; at <= 2; at++ {
		waits, again, serves := false, false, false
		r := newPair(t, 0)
		lossy := &mute{kind: who}
		r.begin("md0", func(m rdmacm.Manager, _ verbs.Runtime) rdmacm.Manager { lossy.Manager = m; return lossy }, func(s *Server, rt verbs.Runtime) {
			r.begin("md1", pausing(at, &waits, &again), func(*Server, verbs.Runtime) { serves = true })
			await(rt, &waits)
			s.pool.nextID = s.pool.endID - 1
			lossy.lose = true
			if n, err := s.number(); err == nil {
				t.Errorf("at %d: number %#x without an answer", at, n)
			}
			again = true
			await(rt, &serves)
			for i := range s.mem.memory {
				if s.mem.reach(i) == nil && s.mem.writeOwner(i) == nil {
					t.Errorf("at %d: the first metadata server writes to server %d beside the other one", at, i)
				}
			}
			if !s.mem.deposed || lossy.n == 0 {
				t.Errorf("at %d: deposed %v after %d questions", at, s.mem.deposed, lossy.n)
			}
		})
		r.run()
	}
}

// The memory services restart after a metadata server has got its number there. They have forgotten it,
// so that they may give it to another metadata server. The first one takes a new number.
func TestMemoryServicesRestartDuringATakeOver(t *testing.T) {
	for at := 1; at <= 2; at++ {
		r := newPair(t, 0)
		gave, again, serves := false, false, false
		asked := &mute{kind: reserve}
		r.begin("md0", func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
			asked.Manager = pausing(at, &gave, &again)(m, rt)
			return asked
		}, func(s *Server, _ verbs.Runtime) {
			serves = true
			if asked.n < at+2 {
				t.Errorf("at %d: %d requests for a number: the restarted services have given none", at, asked.n)
			}
		})
		r.Host("md1").Go("story", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			await(rt, &gave)
			r.loseMemory(rt)
			again = true
			await(rt, &serves)
		})
		r.run()
	}
}

// All memory servers lose their memory and with it the number of the metadata server, which hangs. Another
// one gets a number that may be smaller, and hangs while it formats the memory. The first one goes on and
// formats the memory. Then the other one cannot write there any more.
func TestAnotherServerIsAboutToFormat(t *testing.T) {
	stays, formats := 0, 0
	for seed := range uint64(4) {
		for after := time.Duration(0); after < 60*time.Microsecond; after += 4 * time.Microsecond {
			deposed, err := testFormats(t, seed, after)
			switch {
			case !deposed && err == nil:
				t.Errorf("seed %d, after %v: the other metadata server formats what the first one serves", seed, after)
			case deposed:
				formats++
			default:
				stays++
			}
		}
	}
	if stays == 0 || formats == 0 {
		t.Errorf("the first metadata server stays in %d runs, and is deposed in %d: the test proves nothing", stays, formats)
	}
}

// testFormats reports whether the first metadata server is deposed while the other one hangs, and the error
// of the other one, which hangs some time after its last connection.
func testFormats(t *testing.T, seed uint64, after time.Duration) (deposed bool, err error) {
	r := newPair(t, seed)
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) {
		r.loseMemory(rt)
		h := r.Host("md1")
		hung, ended := false, false
		h.Go("meta", false, func(ctx verbs.Context) {
			c, rt := r.cfg, ctx.Runtime()
			// two connections to each server without a number, and two under it
			c.Context, c.Manager = ctx, &halting{Manager: h.Manager(ctx), at: 8, connects: true, halt: func() {
				r.At(rt.Now().Add(after), func() { hung = true; h.HangAll() })
			}}
			_, err = New(c)
			ended = true
		})
		await(rt, &hung)
		for i := range s.mem.memory {
			_ = s.mem.breakWays(i) // it has noticed the crash
		}
		for end := rt.Now().Add(20 * time.Millisecond); rt.Now() < end && !s.mem.deposed; rt.Sleep(time.Millisecond) {
			s.watchMemory(rt.Now())
		}
		deposed = s.mem.deposed
		h.ResumeAll()
		await(rt, &ended)
	})
	r.run()
	return deposed, err
}
