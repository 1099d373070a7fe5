package serialize_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

const threeClients = `
name: paper
switch:
  program: swordbox
  rules:
    - {id: all, server: ms0, action: ACTION, mode: published}
hosts:
  - {name: cn0, role: compute}
  - {name: cn1, role: compute}
  - {name: cn2, role: compute}
  - {name: ms0, role: memory}
`

func newRack(t *testing.T, action string, opt simrack.Options) *simrack.Rack {
	t.Helper()
	s, err := rackfile.Parse([]byte(strings.Replace(threeClients, "ACTION", action, 1)))
	if err != nil {
		t.Fatal(err)
	}
	opt.Datagrams = true
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	for _, name := range []string{memservice.Service, perf.PerfService} {
		h := r.Host("ms0")
		h.Go(name, true, func(ctx verbs.Context) {
			start, cfg := memservice.New, memservice.Config{Region: 4096}
			if name == perf.PerfService {
				start, cfg = perf.NewServer, memservice.Config{}
			}
			srv, err := start(ctx, h.Manager(ctx), cfg)
			if err == nil {
				err = srv.Serve()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	return r
}

// counter returns a counter of the published machine.
func counter(t *testing.T, r *simrack.Rack, name string) uint64 {
	t.Helper()
	p, ok := r.Program().(*swordbox.Program)
	if !ok {
		t.Fatalf("the program is %T", r.Program())
	}
	for _, m := range p.Report(0).Handlers {
		for _, c := range m.Counters {
			if m.Mode == rules.Published && c.Name == name {
				return c.Value
			}
		}
	}
	t.Fatalf("no counter %q", name)
	return 0
}

// client runs a perf test on a host.
type client struct {
	host  string
	after time.Duration
	cfg   perf.Config
	err   error
	// working, if not nil, counts the clients whose work has not ended. The client keeps its
	// connections until it is 0.
	working *int
}

// run runs clients concurrently.
func run(t *testing.T, r *simrack.Rack, clients ...*client) {
	t.Helper()
	for _, c := range clients {
		cn := r.Host(c.host)
		c.cfg.Counters, c.cfg.To, c.cfg.Verify = cn.Counters, "ms0", true
		cn.Go(c.cfg.Test, false, func(ctx verbs.Context) {
			ctx.Runtime().Sleep(c.after)
			if c.working != nil {
				c.cfg.Hold = func() error {
					for *c.working--; *c.working > 0; {
						ctx.Runtime().Sleep(time.Millisecond)
					}
					return nil
				}
			}
			_, c.err = perf.Run(ctx, cn.Manager(ctx), r.Host("ms0").Addr(), c.cfg, nil)
		})
	}
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", counters(t, r))
}

// trio returns three clients: one that starts first and ends last, so that its connection is
// borrowed, and two others.
func trio(cfg perf.Config) []*client {
	owner := &client{host: "cn0", cfg: cfg}
	owner.cfg.Iters *= 10
	return []*client{owner, {host: "cn1", after: 100 * time.Microsecond, cfg: cfg}, {host: "cn2", after: 110 * time.Microsecond, cfg: cfg}}
}

// Without faults, with one packet a message and one atomic at a time, and while the owner of the
// borrowed connection stays, the published design is correct: every byte and every atomic is
// verified.
func TestWithoutFaults(t *testing.T) {
	for _, action := range []string{"move", "atomics"} {
		for _, test := range []string{perf.WriteLat, perf.ReadLat, perf.AtomicLat} {
			t.Run(action+"/"+test, func(t *testing.T) {
				r := newRack(t, action, simrack.Options{FirstPSN: nearWrap})
				clients := trio(perf.Config{Test: test, Iters: 400})
				run(t, r, clients...)
				for _, c := range clients {
					if c.err != nil {
						t.Errorf("%s: %v", c.host, c.err)
					}
				}
				if counter(t, r, "moved") < 800 || counter(t, r, "overwritten") != 0 {
					t.Error("not everything was moved")
				}
				if got := counter(t, r, "replaced"); (got > 3000) != (action == "atomics" && test == perf.AtomicLat) {
					t.Errorf("%d atomics were replaced", got)
				}
			})
		}
	}
}

func nearWrap(*rand.Rand) wire.PSN { return 0xffffe0 }

// Hole 4: when the owner of the borrowed connection ends, the other clients hang.
func TestOwnerLeaves(t *testing.T) {
	r := newRack(t, "move", simrack.Options{})
	clients := trio(perf.Config{Test: perf.WriteLat, Iters: 400})
	clients[0].cfg.Iters = 200
	run(t, r, clients...)
	if clients[0].err != nil || clients[1].err == nil || clients[2].err == nil {
		t.Errorf("%v; %v; %v", clients[0].err, clients[1].err, clients[2].err)
	}
}

// If all hosts keep the connections of their clients until the clients of the last host have ended,
// hole 4 does not matter to a measurement.
func TestOwnerStaysWhileOthersWork(t *testing.T) {
	for _, held := range []bool{false, true} {
		r := newRack(t, "atomics", simrack.Options{Delay: 20 * time.Microsecond})
		working := 3
		var clients []*client
		for i, host := range []string{"cn0", "cn1", "cn2"} {
			cfg := perf.Config{Test: perf.Contend, Iters: 400 * (i + 1), OneWord: perf.OneWord{Clients: 4}}
			c := &client{host: host, after: time.Duration(i) * 100 * time.Microsecond, cfg: cfg}
			if held {
				c.working = &working
			}
			clients = append(clients, c)
		}
		run(t, r, clients...)
		if err := errors.Join(clients[0].err, clients[1].err, clients[2].err); (err == nil) != held {
			t.Errorf("connections held %v: %v", held, err)
		}
	}
}

// Hole 5: requests of other clients are sent in the middle of the owner's messages of many packets
// and break them.
func TestTornMessages(t *testing.T) {
	r := newRack(t, "move", simrack.Options{})
	owner := &client{host: "cn0", cfg: perf.Config{Test: perf.WriteBW, Iters: 200}}
	other := &client{host: "cn1", after: 100 * time.Microsecond, cfg: perf.Config{Test: perf.WriteLat, Iters: 1000}}
	run(t, r, owner, other)
	if owner.err == nil && other.err == nil {
		t.Error("nothing was torn")
	}
}

// Hole 18: the cache takes the answer of the first atomic for the word's value, while others are in
// flight.
func TestCacheFilledTooEarly(t *testing.T) {
	for _, depth := range []int{1, 4} {
		r := newRack(t, "atomics", simrack.Options{})
		c := &client{host: "cn0", cfg: perf.Config{Test: perf.AtomicBW, Iters: 100, Depth: depth, Path: perf.Path{RdAtomic: depth}}}
		run(t, r, c)
		var wrong *perf.DataError
		if bad := errors.As(c.err, &wrong); bad != (depth > 1) {
			t.Errorf("depth %d: %v", depth, c.err)
		}
	}
}

func counters(t *testing.T, r *simrack.Rack) (list []handler.Counter) {
	p := r.Program().(*swordbox.Program)
	for _, m := range p.Report(0).Handlers {
		for _, c := range m.Counters {
			if m.Mode == rules.Published && c.Value != 0 {
				list = append(list, c)
			}
		}
	}
	return list
}
