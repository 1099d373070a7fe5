package simrack

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// switchDelay is what each packet takes in the switch of these tests. heldFor is how much longer
// keeper holds READ requests.
const (
	switchDelay = 3 * time.Microsecond
	heldFor     = 5 * time.Microsecond
)

// keeper holds READ requests, or drops the first one.
type keeper struct {
	forward.Program
	drops, seen int
}

func (k *keeper) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode != wire.RCReadRequest {
		return pipeline.Forward()
	}
	if k.seen++; k.seen <= k.drops {
		return pipeline.Drop("test")
	}
	return c.Hold(p, c.Now.Add(heldFor))
}

// transitRack is a rack whose switch takes switchDelay for a packet, and a memory server.
func transitRack(t *testing.T, yaml string, opt Options) *Rack {
	t.Helper()
	opt.Cost, opt.Delay, opt.Transits = &cost.Model{Switch: cost.Switch{Delay: switchDelay}}, time.Microsecond, true
	r := newRack(t, yaml, opt)
	ms := r.Host("ms0")
	ms.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, ms.Manager(ctx), memservice.Config{Region: 1 << 16})
		if err == nil {
			err = s.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return r
}

// reader READs the memory server's memory.
type reader struct {
	kv.Switched
	fab *remotemem.Fabric
	mem memservice.Region
}

func (r *reader) read() error {
	var op remotemem.Op
	r.fab.Read(&op, remotemem.Target{Addr: r.mem.Addr, RKey: r.mem.RKey}, 0, 64)
	return r.fab.Do(clock.Never, &op)
}

// client runs f on a host as a client that has connected.
func client(t *testing.T, r *Rack, name string, f func(c *reader) error) {
	h := r.Host(name)
	h.Go("client", false, func(ctx verbs.Context) {
		ctx.Runtime().Sleep(50 * time.Millisecond)
		c := &reader{Switched: ctx.Runtime().(kv.Switched)}
		var err error
		if c.fab, err = remotemem.New(remotemem.Config{Context: ctx, Buffer: 4096}); err != nil {
			t.Error(err)
			return
		}
		_, err = c.fab.AddPeer(r.Host("ms0").Addr(), 0, func(qp verbs.QP, until clock.Time) (err error) {
			c.mem, err = memservice.Dial(h.Manager(ctx), qp, r.Host("ms0").Addr(), rdmacm.Params{}, until)
			return err
		})
		if err == nil {
			err = c.fab.Open(0, clock.Time(time.Second))
		}
		if err == nil {
			err = f(c)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// reads READs n times, and checks how long each was in the switch.
func reads(t *testing.T, n int, want time.Duration) func(c *reader) error {
	return func(c *reader) error {
		for i := range n {
			c.InSwitch()
			if err := c.read(); err != nil {
				return err
			}
			if got := c.InSwitch(); got != want {
				return fmt.Errorf("READ %d was in the switch for %v, want %v", i, got, want)
			}
			if again := c.InSwitch(); again != 0 {
				return fmt.Errorf("READ %d counts twice: %v", i, again)
			}
		}
		return nil
	}
}

// A round trip is in the switch twice, and as long as the switch holds it. One that is lost behind
// the switch comes again. A packet that the switch drops has not stayed.
func TestTimeInTheSwitch(t *testing.T) {
	for _, x := range []struct {
		name    string
		program pipeline.Program
		faults  []fault.Rule
		want    time.Duration
	}{
		{"forwarded", forward.Program{}, nil, 2 * switchDelay},
		{"held", &keeper{}, nil, 2*switchDelay + heldFor},
		{"dropped", &keeper{drops: 1}, nil, 2*switchDelay + heldFor},
		{"lost", forward.Program{}, []fault.Rule{{
			Link: "cn0", Kind: fault.Loss, Dir: fault.Down, Count: 1, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCReadResponseOnly}},
		}}, 4 * switchDelay},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := transitRack(t, small, Options{Program: func(*rackfile.Rack) (pipeline.Program, error) { return x.program, nil }})
			r.Host("cn0").SetFaults(x.faults)
			client(t, r, "cn0", reads(t, 1, x.want))
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

const moving = `
name: moving
switch:
  program: swordbox
  rules: [{server: ms0, action: move, mode: %s}]
hosts:
  - {name: "cn[0-1]", role: compute}
  - {name: ms0, role: memory}
`

// A request that the switch sends on a shared connection, or on the connection of another client, under
// another PSN, is in the switch for as long as one that it forwards; so is its response. Requests of
// other clients do not count.
func TestTimeInTheSwitchOfMovedRequests(t *testing.T) {
	for _, mode := range []string{"hardened", "published"} {
		t.Run(mode, func(t *testing.T) {
			r := transitRack(t, fmt.Sprintf(moving, mode), Options{Datagrams: true})
			for _, name := range []string{"cn0", "cn1"} {
				client(t, r, name, reads(t, 40, 2*switchDelay))
			}
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
			seen := false
			for _, g := range programOf(t, r).Counters(r.Now()) {
				for _, c := range g.Counters {
					if g.Name+" "+c.Name == mode+" moved" {
						if seen = true; c.Value < 40 {
							t.Errorf("%d requests were moved", c.Value)
						}
					}
				}
			}
			if !seen {
				t.Error("no counter of moved requests")
			}
		})
	}
}

// The time belongs to the thread that has posted the request, and a rack that measures nothing has
// none.
func TestTimeInTheSwitchOfOtherThreads(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := transitRack(t, small, Options{})
		if !on {
			r.transits = nil
		}
		client(t, r, "cn0", func(c *reader) error {
			c.InSwitch()
			c.Go("other", func() {
				if err := c.read(); err != nil {
					t.Error(err)
				}
				c.Sleep(2 * time.Millisecond)
				if got := c.InSwitch(); (got == 2*switchDelay) != on {
					t.Errorf("the thread that posted: %v, measured %v", got, on)
				}
			})
			c.Sleep(time.Millisecond)
			if got := c.InSwitch(); got != 0 {
				return fmt.Errorf("the thread that slept: %v", got)
			}
			return nil
		})
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// A request that the thread has posted before its last call does not count, wherever it is.
func TestTimeInTheSwitchOfEarlierPhases(t *testing.T) {
	r := transitRack(t, small, Options{})
	client(t, r, "cn0", func(c *reader) error {
		var op remotemem.Op
		c.fab.Read(&op, remotemem.Target{Addr: c.mem.Addr, RKey: c.mem.RKey}, 0, 64)
		if err := c.fab.Start(&op); err != nil {
			return err
		}
		c.InSwitch()
		if err := c.fab.Wait(clock.Never, &op); err != nil {
			return err
		}
		if got := c.InSwitch(); got != 0 {
			return fmt.Errorf("in the switch for %v", got)
		}
		return nil
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}
