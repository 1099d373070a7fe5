package insim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached"
	"github.com/rdmalab/rdmalab/store/nictable"
)

const (
	// itemHead is how much longer a value of the table is than the data of an item: flags and key.
	itemHead = 64
	// perItem is what a value takes besides in the server's memory, at most: three slots, its head, and
	// the rest of a line. tableRest is the memory for the programs of the clients.
	perItem, tableRest = 5 * 64, 64 << 20
)

// largeRun is a Memcached in progress.
type largeRun struct {
	tableRun
	load  experiment.Memcached
	begin clock.Time // when the GETs begin; 0: the table is not filled yet
	end   clock.Time // when the last one has ended
	out   experiment.MemcachedResult
	took  time.Duration // of all GETs together
}

// Memcached fills a table on the server's own processor, which takes no time here, and then lets the
// clients ask for keys at random.
func (p *Sim) Memcached(ctx context.Context, l experiment.Memcached) (experiment.MemcachedResult, error) {
	if l.Way == experiment.WayMemcached {
		return experiment.MemcachedResult{}, errors.ErrUnsupported
	}
	shape := nictable.Shape{Items: l.Keys, Value: l.Bytes + itemHead}
	file := fmt.Sprintf("name: memcached\nhosts:\n  - {name: md0, role: metadata, memory: %d}\n  - {name: \"cn[0-%d]\", role: compute}\n",
		(l.Keys*(l.Bytes+itemHead+perItem)+tableRest)&^(1<<20-1), tableHosts)
	r := &largeRun{load: l}
	r.tableRun = tableRun{model: p.Cost.BackToBack(), load: experiment.RedN{Way: l.Way, Trip: l.Trip, Serve: l.Serve}}
	var err error
	if r.rack, err = newRack(ctx, file, simrack.Options{Cost: r.model}); err != nil {
		return r.out, err
	}
	defer r.rack.Close()
	r.rack.Host("md0").Go("estate", true, func(ctx verbs.Context) {
		var err error
		r.estate, err = nictable.NewEstate(ctx, shape)
		r.rack.Stop(err)
		for err == nil {
			ctx.Runtime().Sleep(time.Hour)
		}
	})
	r.start()
	startClients(r.rack, l.Clients, tableHosts+1, r.client)
	err = run(ctx, r.rack)
	if r.out.Gets > 0 {
		r.out.Mean = r.took / time.Duration(r.out.Gets)
		r.out.Rate = float64(r.out.Gets) / r.end.Sub(r.begin).Seconds()
	}
	return r.out, err
}

// key and data are those of item i: 16 bytes, as memaslap makes them, and bytes that depend on i.
func (r *largeRun) key(b []byte, i int) []byte { return fmt.Appendf(b[:0], "key-%012d", i) }

func (r *largeRun) data(b []byte, i int) []byte {
	for b = b[:0]; len(b) < r.load.Bytes; {
		b = fmt.Appendf(b, "%d,", i+len(b)*r.load.Keys)
	}
	return b[:r.load.Bytes]
}

// fill stores all items.
func (r *largeRun) fill() (err error) {
	var key, data []byte
	for i := range r.load.Keys {
		key, data = r.key(key, i), r.data(data, i)
		if err := memcached.Set(r.server, key, 0, data); err != nil {
			return fmt.Errorf("key %d: %w", i, err)
		}
	}
	r.out.Keys = r.server.Keys()
	return nil
}

// client makes its part of the GETs. The first client fills the table before.
func (r *largeRun) client(h *simrack.Host, ctx verbs.Context, id int) (err error) {
	rt := ctx.Runtime()
	c, err := nictable.Open(nictable.ClientConfig{Context: ctx, Manager: h.Manager(ctx), Server: r.rack.Host("md0").Addr(), Gets: r.gets()}, tableReady)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if id == 0 {
		if err := r.fill(); err != nil {
			return err
		}
	}
	rt.Sleep(tableReady.Sub(rt.Now()))
	r.begin = tableReady
	random := rand.New(rand.NewPCG(uint64(id), 55))
	var key, data, got []byte
	for range r.load.Gets / r.load.Clients {
		i := random.IntN(r.load.Keys)
		key, data = r.key(key, i), r.data(data, i)
		begin := rt.Now()
		_, got, err = memcached.Get(c, key, got, begin.Add(tableWaits))
		r.think(c, rt)
		r.took += rt.Now().Sub(begin)
		r.out.Gets++
		switch {
		case errors.Is(err, kv.ErrNotFound):
			r.out.Missed++
		case err != nil:
			return err
		case !bytes.Equal(got, data):
			r.out.Wrong++
		}
	}
	r.end = max(r.end, rt.Now())
	return nil
}
