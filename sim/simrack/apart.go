package simrack

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/workers"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// crowd is applications that run apart; see Rack.RunApart.
type crowd struct {
	workers int
	apps    []*shell
	caller  *simnet.Proc
	ended   bool
	err     error
}

// RunApart waits until all threads of the applications have ended, as Runtime.Wait does for one of them.
// Meanwhile each leaf with its hosts, and each spine, is a shard (simnet.Shards), and workers goroutines run
// them. Threads of different leaves then run at the same time, so they must share nothing but the network;
// the connection managers must be those of the NICs (Options.Datagrams). Only a thread of the rack may call
// RunApart, while no other one does, and no call of At may be pending.
func (r *Rack) RunApart(workers int, apps ...verbs.Runtime) error {
	if !r.opt.Datagrams {
		return errors.New("simrack: hosts run apart only if they connect by datagrams")
	}
	c := &crowd{workers: workers, caller: r.net.Current()}
	for _, a := range apps {
		b, ok := a.(*shell)
		if !ok || b.host.rack != r {
			return fmt.Errorf("simrack: %T is no application of this rack", a)
		}
		c.apps = append(c.apps, b)
	}
	r.crowd = c
	r.net.Stop(simnet.ErrPaused)
	for !c.ended {
		c.caller.Park(clock.Never, "applications that run apart")
	}
	return c.err
}

// Run runs until all applications that are not daemons have returned. If an application waits for
// ever, the error is a *simnet.StuckError that names it.
func (r *Rack) Run() error {
	for {
		err := r.net.Run()
		if !errors.Is(err, simnet.ErrPaused) || r.crowd == nil {
			return err
		}
		if err := r.runCrowd(); err != nil {
			return err
		}
	}
}

// runCrowd runs the applications of r.crowd. It returns an error that ends the simulation.
func (r *Rack) runCrowd() error {
	c := r.crowd
	r.crowd = nil
	shards, err := r.net.Split(r.shards())
	if err != nil {
		c.end(err)
		return nil
	}
	shards.Eager = r.eager
	r.apart, r.crew = shards, workers.New(c.workers)
	err = shards.Run(r.crew, c.done)
	r.crew.Close()
	shards.Join()
	r.apart, r.crew = nil, nil
	r.windows += shards.Windows()
	c.end(nil)
	return err
}

func (c *crowd) end(err error) {
	c.ended, c.err = true, err
	c.caller.Wake()
}

// done reports whether all threads have ended.
func (c *crowd) done() bool {
	for len(c.apps) > 0 {
		for _, p := range c.apps[0].threads {
			if !p.Done() {
				return false
			}
		}
		c.apps = c.apps[1:]
	}
	return true
}

// shards returns the shard of each node: that of its leaf, or its own if it is a switch.
func (r *Rack) shards() []int {
	of := make([]int, len(r.fabric.boxes)+len(r.hosts))
	for _, b := range r.fabric.boxes {
		of[b.node] = b.index
	}
	for _, h := range r.hosts {
		of[h.node] = r.fabric.box(r.Spec.LeafOf(h.Spec)).index
	}
	return of
}

// Windows returns for how many windows shards have run apart.
func (r *Rack) Windows() uint64 { return r.windows }

// net returns the network in which the host's events happen.
func (h *Host) net() *simnet.Net {
	if s := h.rack.apart; s != nil {
		return s.Part(h.node)
	}
	return h.rack.net
}

// Stop makes Run return err after the current event, or, while hosts run apart, after the current window.
func (r *Rack) Stop(err error) {
	if r.crew != nil {
		r.crew.Fail(err)
		return
	}
	r.net.Stop(err)
}
