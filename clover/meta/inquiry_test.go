package meta

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// All services that are asked must answer: the first one that does not decides.
func TestServicesThatAreAsked(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, c := range map[string]struct {
		ask  []int
		ran  bool
		took time.Duration // at least
	}{
		"all run":                   {[]int{0, 2}, true, 0},
		"the first one does not":    {[]int{1, 0}, false, 0},
		"the last one does not":     {[]int{0, 1}, false, 0},
		"none is asked":             {nil, true, 0},
		"the one between does not":  {[]int{0, 1, 2}, false, 0},
		"the first of two does not": {[]int{1, 1}, false, limit},
	} {
		withMemory(t, 3, nil, func(r *pair, s *Server, rt verbs.Runtime) {
			r.Host("ms1").Crash()
			q := &inquiry{ended: true, ran: !c.ran}
			var list []netip.Addr
			for _, i := range c.ask {
				list = append(list, s.mem.cfg.Servers[i])
			}
			began := rt.Now()
			if !q.begin(&s.mem, limit, list...) || q.begin(&s.mem, limit, list...) {
				t.Errorf("%s: two inquiries go on", name)
			}
			if _, _, known := q.take(rt.Now()); known {
				t.Errorf("%s: there is an outcome while the inquiry goes on", name)
			}
			q.wait(&s.mem)
			now := rt.Now()
			if took := now.Sub(began); c.took > 0 && (took < c.took || took > c.took+limit/2) {
				t.Errorf("%s: took %v", name, took)
			}
			if ran, fresh, known := q.take(now); ran != c.ran || !fresh || !known {
				t.Errorf("%s: ran %v, fresh %v, known %v", name, ran, fresh, known)
			}
			if q.asking || q.until < began.Add(limit) || q.until > now.Add(limit) {
				t.Errorf("%s: asking %v, fresh until %v", name, q.asking, q.until)
			}
			if !q.begin(&s.mem, limit) {
				t.Errorf("%s: no second inquiry", name)
			}
			q.wait(&s.mem)
		})
	}
}

// When Serve returns, also with an error, the service has no listener any more, and no thread asks
// or fences memory servers.
func TestNothingGoesOnAfterServe(t *testing.T) {
	withMemory(t, 2, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		r.Host("ms1").Crash()
		s.pool.fences.Add(7)
		s.members.watched[1].begin(&s.mem, 1500*time.Millisecond, r.cfg.Servers[1])
		began := rt.Now()
		s.mem.deposed = true
		err := s.Serve()
		if took := rt.Now().Sub(began); !errors.Is(err, errDeposed) || s.members.watched[1].asking || took < memoryTimeout || took > 2*memoryTimeout {
			t.Errorf("%v after %v, asking %v", err, took, s.members.watched[1].asking)
		}
		l, err := s.mem.cfg.Manager.Listen(s.mem.cfg.Service)
		if err != nil {
			t.Errorf("the service cannot listen again: %v", err)
			return
		}
		_ = l.Close()
	})
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		r.Host("ms1").Crash()
		s.pool.fences.Add(7)
		rt.Sleep(time.Millisecond)
		began := rt.Now()
		if err := errors.Join(s.Close(), s.Serve()); err != nil || rt.Now() < began.Add(memoryTimeout/2) || rt.Now() > began.Add(2*memoryTimeout) {
			t.Errorf("%v after %v: the thread that fences has a request of one second", err, rt.Now().Sub(began))
		}
	})
}
