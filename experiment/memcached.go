package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// WayMemcached is a way of Memcached that only a rack has. WayNIC, WayReads and WayPolling are further ones; on a
// rack the first and the last of these speak memcached's protocol.
const WayMemcached = "memcached" // memcached of the distribution

// Memcached is a load of GETs of a table whose keys are texts, as those of memcached.
type Memcached struct {
	// Way says what answers the GETs.
	Way string
	// Keys is the number of keys, of which each GET asks for one; Gets is the number of GETs of all
	// clients together. Bytes is the length of a value, and Clients the number of clients.
	Keys, Gets, Bytes, Clients int
	// Trip and Serve are the times of programs in the simulator, as those of RedN.
	Trip, Serve time.Duration
}

// MemcachedResult says what became of the GETs of a Memcached. Rate is in GETs a second.
type MemcachedResult struct {
	Keys, Gets, Wrong, Missed int
	Rate                      float64
	Mean                      time.Duration
}

// Bad returns an error if a GET had no answer or a wrong one, or if GETs are missing.
func (r *MemcachedResult) Bad(l Memcached) error {
	if r.Wrong+r.Missed == 0 && r.Gets == l.Gets {
		return nil
	}
	return fmt.Errorf("%s: %d of %d GETs were made, %d of them had a wrong answer and %d none", l.Way, r.Gets, l.Gets, r.Wrong, r.Missed)
}

// memcachedGets counts the answers to many GETs of a large table.
var memcachedGets = Experiment{
	Name:   "memcached-gets",
	Short:  "a million GETs of a million keys, by the server's NIC, by READs, and by memcached",
	Figure: "RedN (NSDI 2022), section 5.4: the load of figure 14, a million GETs of memcached",
	Sim:    "5 min, with --quick 10 s", Rack: "10 min, with --quick 20 s", Cost: "connectx5",
	Examples: []string{"--on rack --keys 100000 --gets 100000"},
	New: func() Body {
		return &memcachedBody{load: Memcached{Keys: 1_000_000, Gets: 1_000_000, Bytes: 64, Clients: 10}}
	},
}

type memcachedBody struct{ load Memcached }

// memcachedQuick is the number of keys and of GETs with --quick.
const memcachedQuick = 20_000

func (b *memcachedBody) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&b.load.Keys, "keys", b.load.Keys, "number of keys, a multiple of --clients, up to 4000000")
	fs.IntVar(&b.load.Gets, "gets", b.load.Gets, "number of GETs, a multiple of --clients")
	fs.IntVar(&b.load.Bytes, "bytes", b.load.Bytes, "length of a value, 16 to 1024 bytes")
	fs.IntVar(&b.load.Clients, "clients", b.load.Clients, "number of clients, 1 to 64")
}

func (b *memcachedBody) Check(at Place) error {
	l := &b.load
	if at.Quick {
		l.Keys, l.Gets = min(l.Keys, memcachedQuick), min(l.Gets, memcachedQuick)
	}
	switch {
	case l.Clients < 1 || l.Clients > 64:
		return fmt.Errorf("--clients %d: want 1 to 64", l.Clients)
	case l.Keys < l.Clients || l.Keys > 4_000_000 || l.Keys%l.Clients != 0:
		return fmt.Errorf("--keys %d: want a multiple of --clients up to 4000000", l.Keys)
	case l.Gets < l.Clients || l.Gets%l.Clients != 0:
		return fmt.Errorf("--gets %d: want a multiple of --clients", l.Gets)
	case l.Bytes < 16 || l.Bytes > 1024:
		return fmt.Errorf("--bytes %d: want 16 to 1024", l.Bytes)
	}
	return nil
}

// memcachedWays are the lines of the table.
var memcachedWays = []struct{ way, name, on string }{
	{WayNIC, "RedN, the server's NIC", ""},
	{WayReads, "READs of the client", OnSim},
	{WayPolling, "the server's process", ""},
	{WayMemcached, "memcached", OnRack},
}

func (b *memcachedBody) Run(ctx context.Context, p Platform, r *Report) error {
	r.Columns(Column{Key: "way", Title: "ANSWERED BY"}, Column{Key: "keys", Title: "KEYS", Format: "%.0f"}, Column{Key: "gets", Title: "GETS", Format: "%.0f"},
		Column{Key: "wrong", Title: "WRONG", Format: "%.0f"}, Column{Key: "missed", Title: "MISSED", Format: "%.0f"},
		Column{Key: "kgets", Title: "kGETS/S", Format: "%.1f"}, Column{Key: "mean_us", Title: "MEAN, µs", Format: "%.2f"})
	var failed error
	for i, w := range memcachedWays {
		if w.on != "" && w.on != p.On() {
			continue
		}
		l := b.load
		l.Way, l.Trip, l.Serve = w.way, rednTrip, rednServe
		r.begin(i+1, len(memcachedWays), "%s", w.name)
		res, err := p.Memcached(ctx, l)
		if err != nil {
			return errors.Join(failed, fmt.Errorf("%s: %w", w.name, err))
		}
		r.end("%.1fk GETs/s", res.Rate/1e3)
		failed = errors.Join(failed, res.Bad(l))
		r.Add(Label(w.name), Num(float64(res.Keys)), Num(float64(res.Gets)), Num(float64(res.Wrong)), Num(float64(res.Missed)),
			Num(res.Rate/1e3), Num(res.Mean.Seconds()*1e6))
	}
	return failed
}
