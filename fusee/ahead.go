package fusee

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// aheadTimeout is how long the thread of a request waits for the answer.
const aheadTimeout = time.Second

// requests are the client's requests to memory servers for blocks.
type requests struct {
	// turn chooses the server for the next block.
	turn int
	// asked is, by server, the last request.
	asked []request
	// ahead is the request that a thread makes, or nil.
	ahead *ahead
}

// ahead is a request for a block that a thread of its own makes, before the client needs the block.
// A request opens a connection, which takes as long as about 30 round trips. An operation that has
// to wait for that would take much longer than others.
type ahead struct {
	server int
	// id and number are those of the client and of the request (requests.asked). view is the view of
	// the client when the thread began.
	id, number uint32
	view       layout.View
	// done opens when the thread has set block and err, and ends.
	done  verbs.Gate
	block int
	err   error
	// ended: the client has seen that the thread has ended.
	ended bool
}

// wait waits until the thread has ended.
func (a *ahead) wait(deadline clock.Time) (err error) {
	if !a.ended {
		err = a.done.Wait(deadline)
		a.ended = err == nil
	}
	return err
}

// askAhead is called after an operation has taken an object of class c, which has the given number
// of units. If few are left, askAhead requests a block. It does so only if the last block of the class was
// one that was never used: other clients may have freed objects, or left blocks, otherwise.
func (q *requests) askAhead(s *space, c *class, units int) {
	// A request of a former number has no use, nor has one to a server that is no member any more.
	if a := q.ahead; a != nil && (a.id != s.id || !q.asked[a.server].open) && a.wait(s.rt.Now()) == nil {
		q.ahead = nil
	}
	shape := &s.super.Shape
	if q.ahead != nil || !c.fresh || len(c.queue) > min(s.cfg.Ahead, shape.Objects(units)/2) {
		return
	}
	for range s.cfg.Servers {
		server := q.next(s)
		r := &q.asked[server]
		if !s.has(server) || r.open {
			continue
		}
		*r = request{r.number + 1, units, true}
		rt := s.cfg.Context.Runtime()
		a := &ahead{server: server, id: s.id, number: r.number, view: s.view, done: rt.NewGate()}
		cfg, word, table, blocks := &s.cfg, layout.UseBy(s.id, units).Ahead(versionsAhead), shape.BlockTable(0), shape.Blocks
		rt.Go("block", func() {
			a.block, a.err = memservice.Take(cfg.Context, cfg.Manager, cfg.Servers[server], a.id, a.number, table, blocks, uint64(word), rt.Now().Add(aheadTimeout))
			a.done.Open()
		})
		q.ahead = a
		return
	}
}

// answered returns the outcome of the request ahead to a server, and waits for it. known is false
// if there is none, or if it must not be used: then the client repeats the request, which has the
// same number and so the same outcome.
func (q *requests) answered(s *space, server int, deadline clock.Time) (block int, known bool, err error) {
	a := q.ahead
	if a == nil || a.server != server {
		return 0, false, nil
	}
	if err := a.wait(deadline); err != nil {
		return 0, true, err
	}
	q.ahead = nil
	if r := q.asked[server]; !r.open || a.id != s.id || a.number != r.number || a.view != s.view {
		return 0, false, nil
	}
	return a.block, a.err == nil || errors.Is(a.err, memservice.ErrFull), a.err
}

// arrived gets the block that was requested ahead for objects with the given number of units.
// It returns false if there is no such request, or if the server does not answer or has no block left.
func (q *requests) arrived(s *space, units int, deadline clock.Time) (bool, error) {
	a := q.ahead
	if !q.expects(s, units) {
		return false, nil
	}
	err := s.ask(a.server, units, deadline)
	if errors.Is(err, memservice.ErrFull) || errors.Is(err, errSilent) {
		return false, nil
	}
	return err == nil, err
}

// expects reports whether a block was requested ahead for objects with the given number of units.
func (q *requests) expects(s *space, units int) bool {
	a := q.ahead
	return a != nil && a.id == s.id && s.has(a.server) && q.asked[a.server].open && q.asked[a.server].units == units
}

// next returns the server whose turn it is to give the client a block. Clients with successive
// numbers begin with different servers.
func (q *requests) next(s *space) int {
	q.turn++
	return (q.turn + int(s.id) - 2) % len(s.cfg.Servers)
}

// recall is called when the client leaves its blocks. It gets the blocks of requests whose outcome is
// unknown, so that these are left as well.
func (q *requests) recall(s *space, deadline clock.Time) (err error) {
	for server := range q.asked {
		if r := &q.asked[server]; r.open && s.has(server) {
			if e := s.ask(server, r.units, deadline); !errors.Is(e, memservice.ErrFull) {
				err = cmp.Or(err, e)
			}
		}
	}
	return err
}

// unknown reports whether the outcome of a request is unknown.
func (q *requests) unknown() bool {
	return slices.ContainsFunc(q.asked, func(r request) bool { return r.open })
}

// join waits until no thread of the client runs.
func (q *requests) join() {
	if a := q.ahead; a != nil {
		_ = a.wait(clock.Never)
		q.ahead = nil
	}
}
