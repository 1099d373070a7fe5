package kvcs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/kvcsrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

const rtt = 5 * time.Microsecond

func rack(t *testing.T, change func(*kvcsrack.Config)) *kvcsrack.Rack {
	t.Helper()
	cfg := kvcsrack.Config{Seed: 1, Servers: 3, Hosts: 2, Shape: kvcs.Shape{Buckets: 32, Cells: 128, Value: 1200}, RTT: rtt, Rate: 100_000_000_000, Delay: rtt/4 - 250*time.Nanosecond, First: 15}
	if change != nil {
		change(&cfg)
	}
	r, err := kvcsrack.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Net.Close)
	return r
}

func run(t *testing.T, r *kvcsrack.Rack) {
	t.Helper()
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}

// both runs f with two clients on different hosts, which f uses in turn.
func both(r *kvcsrack.Rack, f func(a, b *kvcs.Client, p *kvcsrack.Port) error) {
	r.Client(0, func(a *kvcs.Client, p *kvcsrack.Port) error {
		b, err := kvcs.Open(p.Config(2), p.Now().Add(time.Second))
		if err != nil {
			return err
		}
		return f(a, b, p)
	})
}

func TestConformance(t *testing.T) {
	r := rack(t, nil)
	both(r, func(a, b *kvcs.Client, p *kvcsrack.Port) error {
		return kvtest.Check(kvtest.Env{A: a, B: b, Now: p.Now, Largest: 1200, Exact: true})
	})
	run(t, r)
	if n := len(r.Coordinator().Replicas()); n != 3 {
		t.Errorf("%d replicas", n)
	}
}

// A GET takes two round trips, and one if the key does not exist. It needs no processor of a server.
func TestRoundTrips(t *testing.T) {
	r := rack(t, nil)
	r.Client(0, func(c *kvcs.Client, p *kvcsrack.Port) error {
		if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(p)); err != nil {
			return err
		}
		p.Sleep(p.Now().Add(10 * rtt))
		for i := range 3 {
			r.Server(i).Hang()
		}
		_, err := c.Get(1, nil, soon(p))
		if err != nil || c.Last().RTTs != 2 {
			return fmt.Errorf("GET: %w, %+v", err, c.Last())
		}
		if _, err = c.Get(2, nil, soon(p)); !errors.Is(err, kv.ErrNotFound) || c.Last().RTTs != 1 {
			return fmt.Errorf("GET of an absent key: %w, %+v", err, c.Last())
		}
		return nil
	})
	run(t, r)
}

func soon(p *kvcsrack.Port) clock.Time { return p.Now().Add(10 * time.Second) }

// When the NIC of the preferred replica dies, the next GET turns to another one within 20 round
// trips, and the ones after it at once. Changes wait for the end of the leases, and then go on.
func TestRedirect(t *testing.T) {
	r := rack(t, nil)
	r.Client(0, func(c *kvcs.Client, p *kvcsrack.Port) error {
		if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(p)); err != nil {
			return err
		}
		p.Sleep(p.Now().Add(10 * rtt))
		if _, err := c.Get(1, nil, soon(p)); err != nil {
			return err
		}
		r.Host(c.Replicas()[0]).Crash()
		for i, most := range []time.Duration{20 * rtt, 3 * rtt} {
			began := p.Now()
			if _, err := c.Get(1, nil, soon(p)); err != nil {
				return err
			}
			if took := p.Now().Sub(began); took > most {
				return fmt.Errorf("GET %d took %v", i, took)
			}
		}
		began := p.Now()
		if err := c.Put(1, kv.MakeValue(1, 2, 100), soon(p)); err != nil {
			return err
		}
		if took := p.Now().Sub(began); took < 100*rtt || took > 600*rtt {
			return fmt.Errorf("PUT took %v", took)
		}
		s := r.Coordinator().Stats()
		if s.Expired != 1 || s.Rekeyed != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	run(t, r)
}

// A server that hangs while its NIC serves READs is fenced by a REKEY, without the end of a lease. It
// comes back when its process goes on.
func TestFencedByRekey(t *testing.T) {
	r := rack(t, nil)
	both(r, func(a, b *kvcs.Client, p *kvcsrack.Port) error {
		if err := a.Insert(1, kv.MakeValue(1, 1, 100), soon(p)); err != nil {
			return err
		}
		p.Sleep(p.Now().Add(500 * rtt)) // clients have replicas of all servers
		for _, c := range []*kvcs.Client{a, b} {
			if _, err := c.Get(1, nil, soon(p)); err != nil {
				return err
			}
		}
		hung := r.Host(b.Replicas()[0])
		hung.Hang()
		began := p.Now()
		if err := a.Put(1, kv.MakeValue(1, 2, 100), soon(p)); err != nil {
			return err
		}
		if took := p.Now().Sub(began); took > 80*rtt {
			return fmt.Errorf("PUT took %v", took)
		}
		if s := r.Coordinator().Stats(); s.Rekeyed != 1 || s.Fenced != 1 {
			return fmt.Errorf("%+v", s)
		}
		v, err := b.Get(1, nil, soon(p))
		if err != nil || b.Stats().Redirected == 0 {
			return fmt.Errorf("%w, %+v", err, b.Stats())
		}
		if n, _ := kv.CheckValue(1, v); n != 2 {
			return fmt.Errorf("GET returned value %d", n)
		}
		hung.Resume()
		p.Sleep(p.Now().Add(2000 * rtt))
		if n := len(r.Coordinator().Replicas()); n != 3 {
			return fmt.Errorf("%d replicas", n)
		}
		return nil
	})
	run(t, r)
}

// A GET that ends at its deadline says what it has waited for.
func TestWhyAGetHasTimedOut(t *testing.T) {
	r := rack(t, func(c *kvcsrack.Config) { c.Servers = 1 })
	r.Client(0, func(c *kvcs.Client, p *kvcsrack.Port) error {
		if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(p)); err != nil {
			return err
		}
		if _, err := c.Get(1, nil, soon(p)); err != nil {
			return err
		}
		server := r.Server(0)
		server.Hang() // with the key marked, when the change below has no answer in time
		if err := c.Put(1, kv.MakeValue(1, 2, 100), p.Now().Add(5*rtt)); !errors.Is(err, kv.ErrTimeout) {
			return fmt.Errorf("PUT while the replica hangs: %w", err)
		}
		server.Crash()
		_, err := c.Get(1, nil, p.Now().Add(50*rtt))
		if want := "10.0.0.2 ends with "; !errors.Is(err, kv.ErrTimeout) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("GET from a host that has crashed: %w, want %q", err, want)
		}
		return nil
	})
	run(t, r)
}

// A host that has crashed comes back with an empty memory and gets a copy of the table.
func TestReturn(t *testing.T) {
	r := rack(t, func(c *kvcsrack.Config) { c.Servers = 1 })
	r.Client(0, func(c *kvcs.Client, p *kvcsrack.Port) error {
		for k := range uint64(40) {
			if err := c.Insert(k, kv.MakeValue(k, k, 100), soon(p)); err != nil {
				return err
			}
		}
		r.Server(0).Crash()
		if err := c.Put(7, kv.MakeValue(7, 100, 100), soon(p)); err != nil {
			return err
		}
		if _, err := c.Get(7, nil, p.Now().Add(1000*rtt)); !errors.Is(err, kv.ErrTimeout) || !strings.Contains(err.Error(), "no server has a replica") {
			return fmt.Errorf("GET without a replica: %w", err)
		}
		if err := r.Server(0).Restart(); err != nil {
			return err
		}
		for k := range uint64(40) {
			v, err := c.Get(k, nil, soon(p))
			if n, bad := kv.CheckValue(k, v); err != nil || bad != nil || k != 7 && n != k || k == 7 && n != 100 {
				return fmt.Errorf("key %d after the crash: %d %w", k, n, err)
			}
		}
		return nil
	})
	run(t, r)
}
