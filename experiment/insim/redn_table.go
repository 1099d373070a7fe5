package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/chains"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
)

const (
	// tableKeys is the number of keys of each client, tableGets the number of GETs that are measured.
	tableKeys, tableGets = 200, 1000
	tableHosts           = 4 // number of the last host: the clients are on cn0 to cn4
	// tableReady is the virtual time by which the table is filled.
	tableReady = clock.Time(time.Second)
	// tableRestart and tableRebuild are inputs (RedN, section 5.6): how long after its death a process
	// runs again, and how long it then needs for its metadata and hash table, if it has lost them.
	tableRestart, tableRebuild = time.Second, 1250 * time.Millisecond
	// tablePatience is how long a GET of a timeline may take.
	tablePatience = 10 * time.Millisecond
	// tableWaits is how long an operation may take in a load that is not a timeline.
	tableWaits = time.Second
)

// tableRun is a load of the store nictable in progress. Client 0 reads, the others write.
type tableRun struct {
	load   experiment.RedN
	model  *cost.Model
	rack   *simrack.Rack
	estate *nictable.Estate
	server *nictable.Server
	done   bool // the reader has ended
	out    experiment.RedNResult
}

// table runs a load of the store nictable, on hosts behind a switch without delay.
func (p *Sim) table(ctx context.Context, l experiment.RedN) (experiment.RedNResult, error) {
	file := fmt.Sprintf("name: redn\nhosts:\n  - {name: md0, role: metadata, memory: 256MiB}\n  - {name: \"cn[0-%d]\", role: compute}\n", tableHosts)
	r := &tableRun{load: l, model: p.Cost.BackToBack()}
	var err error
	if r.rack, err = newRack(ctx, file, simrack.Options{Cost: r.model}); err != nil {
		return r.out, err
	}
	defer r.rack.Close()
	r.rack.Host("md0").Go("estate", true, func(ctx verbs.Context) {
		var err error
		r.estate, err = nictable.NewEstate(ctx, nictable.Shape{Items: tableKeys * (l.N + 1), Value: max(kv.MinValue, l.Bytes)})
		r.rack.Stop(err)
		for err == nil {
			ctx.Runtime().Sleep(time.Hour)
		}
	})
	r.start()
	startClients(r.rack, l.N+1, tableHosts+1, r.client)
	if l.Kind == experiment.ChainCrash {
		down := tableRestart
		if l.Way == experiment.WayPolling {
			down += tableRebuild
		}
		death := tableReady.Add(chains.Death * chains.Step)
		r.rack.At(death, func() { r.server.Close() })
		r.rack.At(death.Add(down), r.start)
	}
	return r.out, run(ctx, r.rack)
}

// start starts a process that serves the table, at the beginning or after its death.
func (r *tableRun) start() {
	h := r.rack.Host("md0")
	h.Go("server", true, func(ctx verbs.Context) {
		for r.estate == nil {
			ctx.Runtime().Sleep(time.Microsecond)
		}
		var err error
		r.server, err = nictable.NewServer(ctx, h.Manager(ctx), rdmacm.Params{}, r.estate)
		if err == nil {
			r.server.Pace = func() { ctx.Runtime().Sleep(r.model.NIC.Completion + r.load.Serve) }
			err = r.server.Serve()
		}
		r.rack.Stop(err)
	})
}

// gets returns the name by which nictable knows the way of the load's GETs.
func (r *tableRun) gets() string {
	switch r.load.Way {
	case experiment.WayReads:
		return store.GetsReads
	case experiment.WayPolling:
		return store.GetsServer
	}
	return store.GetsNIC
}

// client fills its part of the table. Then client 0 reads, and the others write until client 0 has
// ended.
func (r *tableRun) client(h *simrack.Host, ctx verbs.Context, id int) (err error) {
	rt := ctx.Runtime()
	c, err := nictable.Open(nictable.ClientConfig{Context: ctx, Manager: h.Manager(ctx), Server: r.rack.Host("md0").Addr(), Gets: r.gets()}, tableReady)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	key := func(i int) uint64 { return uint64(id*tableKeys + i%tableKeys) }
	value := func(k uint64) []byte { return kv.MakeValue(k, 1, max(kv.MinValue, r.load.Bytes)) }
	for i := range tableKeys {
		if err := c.Insert(key(i), value(key(i)), tableReady); err != nil {
			return err
		}
	}
	rt.Sleep(tableReady.Sub(rt.Now()))
	if id > 0 {
		for i := 0; !r.done; i++ {
			if err := c.Put(key(i), value(key(i)), rt.Now().Add(tableWaits)); err != nil {
				return err
			}
			rt.Sleep(r.model.NIC.Completion + r.load.Trip)
		}
		return nil
	}
	defer func() { r.done = true }()
	if r.load.Kind == experiment.ChainCrash {
		return r.timeline(c, rt, key)
	}
	var took []time.Duration
	for i := range tableGets {
		begin := rt.Now()
		if _, err := c.Get(key(i), nil, begin.Add(tableWaits)); err != nil {
			return err
		}
		r.think(c, rt)
		took = append(took, rt.Now().Sub(begin))
	}
	r.out.Times(took)
	return nil
}

// think spends the time that the client's program takes for a GET. If the NIC or the process has
// answered, it adds the time from the completion to the program. For READs, the cost model has
// already spent this time.
func (r *tableRun) think(c *nictable.Client, rt verbs.Runtime) {
	d := r.load.Trip * time.Duration(cmp.Or(c.Last().RTTs, 1))
	if r.load.Way != experiment.WayReads {
		d += r.model.NIC.Completion
	}
	rt.Sleep(d)
}

// timeline measures which percentage of the GETs is answered in each step.
func (r *tableRun) timeline(c *nictable.Client, rt verbs.Runtime, key func(int) uint64) (err error) {
	r.out.Steps, err = chains.Timeline(rt, tableReady, tablePatience, func(i int, deadline clock.Time) (bool, error) {
		_, err := c.Get(key(i), nil, deadline)
		if errors.Is(err, kv.ErrTimeout) {
			return false, nil
		}
		return err == nil, err
	})
	return err
}
