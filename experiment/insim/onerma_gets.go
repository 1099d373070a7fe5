package insim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/kvcsrack"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// A GET of the service kvcs is a READ of getsIndex bytes and then one of getsCell bytes. A host has
// getsWorker clients; a GET that finds all of them busy waits.
const (
	getsIndex  = 512                                           // bytes of two buckets
	getsCell   = 24 + failoverValue                            // the head of a cell and the value
	getsFrames = getsIndex + getsCell + 2*(onerma.Overhead+14) // bytes of a GET on the link of a server
	getsWorker = 48                                            // clients of a host
)

// newStore makes a rack with the store kvcs, and adds a client that loads the keys.
func newStore(ctx context.Context, l *experiment.OneRMA, seed uint64) (*kvcsrack.Rack, error) {
	r, err := kvcsrack.New(kvcsrack.Config{
		Seed: seed, Servers: failoverServers, Hosts: l.Hosts, RTT: soloRTT, Delay: soloDelay, Rate: soloRate, First: l.First, Window: l.Window, Threshold: l.Threshold,
		Shape: kvcs.Shape{Buckets: 2 * failoverKeys, Cells: 2 * failoverKeys, Value: failoverValue},
		Sim:   simnet.Config{MaxEvents: soloEvents, Cancelled: cancelled(ctx)},
	})
	if err != nil {
		return nil, err
	}
	r.Client(0, func(c *kvcs.Client, p *kvcsrack.Port) error {
		for k := range uint64(failoverKeys) {
			if err := c.Insert(k, kv.MakeValue(k, 1, failoverValue), p.Now().Add(time.Second)); err != nil {
				return err
			}
		}
		loaded := p.Now()
		p.Sleep(clock.Time(0).Add(failoverWarm))
		if p.Now() != clock.Time(0).Add(failoverWarm) || len(r.Coordinator().Replicas()) != failoverServers {
			return fmt.Errorf("the store was not loaded in time: the last INSERT ended at %v", loaded)
		}
		return nil
	})
	return r, nil
}

// getsArrivals draws the times at which the GETs of a host begin. Their rate is such that the GETs
// of all hosts take the share l.Load of the servers' links. GETs that begin at `from` or later are
// counted.
func getsArrivals(l *experiment.OneRMA, host int) (at []clock.Time, from clock.Time) {
	random := rand.New(rand.NewPCG(8, uint64(host)))
	rate := l.Load * soloRate / 8 / getsFrames * failoverServers / float64(l.Hosts)
	begin := clock.Time(0).Add(2 * failoverWarm)
	from = begin.Add(100 * soloRTT)
	for t := begin; t < from.Add(l.Span); {
		at = append(at, t)
		t = t.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
	}
	return at, from
}

// getsTimes collects the times of the GETs that began at `from` or later. last is when the last of
// them ended.
type getsTimes struct {
	from, last clock.Time
	took       []time.Duration
}

// add notes a GET that was to begin at the time began and has ended at the time now.
func (g *getsTimes) add(began, now clock.Time) {
	if began >= g.from {
		g.took, g.last = append(g.took, now.Sub(began)), max(g.last, now)
	}
}

// result fills in the quantiles of the times of GETs, and the goodput of all servers as a share of
// the rate of their links.
func (g *getsTimes) result(l *experiment.OneRMA, out *experiment.OneRMAResult) {
	if span := max(l.Span, g.last.Sub(g.from)); span > 0 {
		out.Goodput = soloGoodput(len(g.took)*getsFrames, span) / failoverServers
	}
	out.Times(g.took)
}

// soloGets measures GETs that begin at random times.
func soloGets(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	r, err := newStore(ctx, l, 1)
	if err != nil {
		return err
	}
	defer r.Net.Close()
	var times getsTimes
	for host := range l.Hosts {
		var at []clock.Time
		at, times.from = getsArrivals(l, host)
		for i := range getsWorker {
			random := rand.New(rand.NewPCG(uint64(host), uint64(i)))
			r.Client(host, func(c *kvcs.Client, p *kvcsrack.Port) error {
				for len(at) > 0 {
					began := at[0]
					at = at[1:]
					p.Sleep(began)
					if _, err := c.Get(random.Uint64N(failoverKeys), nil, p.Now().Add(10*time.Millisecond)); err != nil {
						return err
					}
					times.add(began, p.Now())
				}
				return nil
			})
		}
	}
	err = r.Run()
	times.result(l, out)
	return err
}

// roceGets is soloGets over RoCEv2: clients make the same READs without the store. All READs of a
// host to a server are on one connection. The first hosts of the rack are the servers.
func roceGets(r *roceRack, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	var times getsTimes
	for host := range l.Hosts {
		var at []clock.Time
		at, times.from = getsArrivals(l, host)
		h := r.hosts[failoverServers+host]
		for range getsWorker {
			p := h.pair(r.rand.IntN(failoverServers))
			var next func()
			next = func() {
				if len(at) == 0 {
					return
				}
				began := at[0]
				at = at[1:]
				r.At(max(began, r.Now()), func() {
					p.begin(roceOp{op: verbs.OpRead, bytes: getsIndex, done: func(time.Duration) {
						p.begin(roceOp{op: verbs.OpRead, bytes: getsCell, done: func(time.Duration) {
							times.add(began, r.Now())
							next()
						}})
					}})
				})
			}
			next()
		}
	}
	err := r.Settle(2*failoverWarm + 100*soloRTT + 2*l.Span + time.Millisecond)
	times.result(l, out)
	return err
}
