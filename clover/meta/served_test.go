package meta

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// serving runs Serve while f uses the store as a client on another host. The clients' completions
// are counted.
func serving(t *testing.T, change func(c *Config), f func(r *pair, s *Server, c *clover.Client, rt verbs.Runtime) error) (completions int) {
	t.Helper()
	withMemory(t, 2, func(c *Config) {
		c.Pace = func(n int) {
			if completions += n; n == 0 {
				t.Error("no completions are paced")
			}
		}
		if change != nil {
			change(c)
		}
	}, func(r *pair, s *Server, _ verbs.Runtime) {
		if s.mem.starting {
			t.Error("the server is starting though it has started")
		}
		h := r.Host("md1")
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: r.Host("md0").Addr()}, rt.Now().Add(5*time.Second))
			if err == nil {
				err = f(r, s, c, rt)
			}
			if err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := s.Serve(); err != nil {
			t.Error(err)
		}
	})
	return completions
}

// A metadata server with and without request threads answers its clients, soon and without a pause,
// and does its periodic work meanwhile.
func TestAClientIsServed(t *testing.T) {
	for _, threads := range []int{0, 1, 2} {
		n := serving(t, func(c *Config) { c.Threads = threads }, func(_ *pair, s *Server, c *clover.Client, rt verbs.Runtime) error {
			began := rt.Now()
			for key := range uint64(3) {
				if err := c.Insert(1+key, nil, rt.Now().Add(time.Second)); err != nil {
					return err
				}
			}
			for i := range 300 {
				if err := c.Put(uint64(1+i%3), []byte{byte(i)}, rt.Now().Add(time.Second)); err != nil {
					return err
				}
			}
			if took := rt.Now().Sub(began); took > 100*time.Millisecond {
				t.Errorf("%d threads: 300 PUTs take %v", threads, took)
			}
			if len(s.chains.keys) != 3 || s.mem.stats.Refused != 0 || len(s.pool.clients) != 1 || (s.mem.hand != nil) != (threads > 0) {
				t.Errorf("%d threads: %d keys, %d clients, %+v", threads, len(s.chains.keys), len(s.pool.clients), s.mem.stats)
			}
			rt.Sleep(2 * keepEvery) // superseded nodes become free
			began = rt.Now()
			if len(s.chains.tidy.due) != 0 || s.mem.stats.Walked > 30 {
				t.Errorf("%d threads: %d entries are due, %d headers", threads, len(s.chains.tidy.due), s.mem.stats.Walked)
			}
			for key, want := range map[uint64]byte{1: 297 % 256, 2: 298 % 256, 3: 299 % 256} {
				if v, err := c.Get(key, nil, rt.Now().Add(time.Second)); err != nil || len(v) != 1 || v[0] != want {
					t.Errorf("%d threads: key %d: %v, %v", threads, key, v, err)
				}
			}
			st, err := c.Stats(rt.Now().Add(time.Second))
			if took := rt.Now().Sub(began); took > time.Millisecond {
				t.Errorf("%d threads: three GETs and a request take %v", threads, took)
			}
			if err != nil || st.Keys != 3 || st.Linked < 3 {
				t.Errorf("%d threads: %+v, %v", threads, st, err)
			}
			if threads > 0 && (len(s.mem.hand.jobs) != 0 || s.mem.hand.serving != 0) {
				t.Errorf("%d threads: %d jobs wait, serving %d", threads, len(s.mem.hand.jobs), s.mem.hand.serving)
			}
			err = c.Close()
			rt.Sleep(5 * keepEvery)
			if len(s.pool.clients) != 0 || s.pool.nodes.held.len() != 0 {
				t.Errorf("%d threads: %d clients, %d nodes held after the end", threads, len(s.pool.clients), s.pool.nodes.held.len())
			}
			return err
		})
		if n < 10 {
			t.Errorf("%d threads: %d completions", threads, n)
		}
	}
}

// The main thread sleeps when there is nothing to do: it takes few steps.
func TestIdleServerSleeps(t *testing.T) {
	for _, threads := range []int{0, 2} {
		withMemory(t, 2, func(c *Config) { c.Threads = threads }, func(r *pair, s *Server, rt verbs.Runtime) {
			waits := 0
			rt.Go("end", func() {
				for range 5 {
					rt.Sleep(keepEvery)
					if s.keepAt >= rt.Now() && s.keepAt <= rt.Now().Add(keepEvery) {
						waits++
					}
				}
				if waits < 4 {
					t.Errorf("%d threads: the periodic work is due in time %d of 5 times", threads, waits)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := s.Serve(); err != nil {
				t.Error(err)
			}
		})
	}
}
