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

// aheadTimeout is how long the thread that requests a block in advance waits for the memory
// server's answer.
const aheadTimeout = time.Second

// requests are the client's requests to memory servers for blocks.
type requests struct {
	// turn counts the calls of next, and so chooses the server for the next block.
	turn int
	// asked is, by server, the last request that the client has made.
	asked []request
	// ahead is the request for the next block that a separate thread makes or has made; nil: there
	// is none.
	ahead *ahead
}

// ahead is a request for a block that a separate thread makes before the client needs the block. A
// request opens a connection, which takes as long as about 30 round trips. An operation that has to
// wait for that would take much longer than others.
type ahead struct {
	server int
	// id is the client number, number the number of the request (see requests.asked), and view the
	// view that the client used when the thread began.
	id, number uint32
	view       layout.View
	// The thread opens done when it has set block and err.
	done  verbs.Gate
	block int
	err   error
	// ended is true if the client knows that the thread has ended.
	ended bool
}

// wait waits until the thread that makes the request has ended.
func (a *ahead) wait(deadline clock.Time) (err error) {
	if !a.ended {
		err = a.done.Wait(deadline)
		a.ended = err == nil
	}
	return err
}

// askAhead is called after an operation has taken an object of class c, which has the given number
// of units. If few free objects are left, askAhead requests a block. It does so only if the class
// got its last free objects with a block that was never used (class.fresh). Otherwise the client
// first looks for freed objects and for blocks that other clients have left (see refill).
func (q *requests) askAhead(s *space, c *class, units int) {
	// Forget a request that has ended and is of no use: the client has another number now, or the
	// request was answered, or the server is no longer a member.
	if a := q.ahead; a != nil && (a.id != s.mem.id || !q.asked[a.server].open) && a.wait(s.mem.rt.Now()) == nil {
		q.ahead = nil
	}
	shape := &s.super.Shape
	if q.ahead != nil || !c.fresh || len(c.queue) > min(s.mem.cfg.Ahead, shape.Objects(units)/2) {
		return
	}
	for range s.mem.cfg.Servers {
		server := q.next(s)
		r := &q.asked[server]
		if !s.mem.has(server) || r.open {
			continue
		}
		*r = request{r.number + 1, units, true}
		rt := s.mem.cfg.Context.Runtime()
		a := &ahead{server: server, id: s.mem.id, number: r.number, view: s.mem.view, done: rt.NewGate()}
		cfg, word, table, blocks := &s.mem.cfg, layout.UseBy(s.mem.id, units).Ahead(versionsAhead), shape.BlockTable(0), shape.Blocks
		rt.Go("block", func() {
			a.block, a.err = memservice.Take(cfg.Context, cfg.Manager, cfg.Servers[server], a.id, a.number, table, blocks, uint64(word), rt.Now().Add(aheadTimeout))
			a.done.Open()
		})
		q.ahead = a
		return
	}
}

// answered waits for the outcome of requests.ahead, if that is a request to this server, and
// returns the outcome. known is false in three cases: there is no such request, it has failed, or
// the client has got another number or view since the request began. If the request is still open
// then, the client repeats it with the same number, for which the server gives the same block. If
// the outcome has not come by the deadline, answered returns the error of that wait, and known is
// true.
func (q *requests) answered(s *space, server int, deadline clock.Time) (block int, known bool, err error) {
	a := q.ahead
	if a == nil || a.server != server {
		return 0, false, nil
	}
	if err := a.wait(deadline); err != nil {
		return 0, true, err
	}
	q.ahead = nil
	if r := q.asked[server]; !r.open || a.id != s.mem.id || a.number != r.number || a.view != s.mem.view {
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

// expects reports whether the client has requested a block for objects with the given number of
// units, ahead of its need, and has not got the block yet.
func (q *requests) expects(s *space, units int) bool {
	a := q.ahead
	return a != nil && a.id == s.mem.id && s.mem.has(a.server) && q.asked[a.server].open && q.asked[a.server].units == units
}

// next returns the server whose turn it is to give the client a block. Clients with successive
// numbers begin with different servers.
func (q *requests) next(s *space) int {
	q.turn++
	return (q.turn + int(s.mem.id) - 2) % len(s.mem.cfg.Servers)
}

// recall is called when the client leaves its blocks to other clients. It repeats the requests
// whose outcome is unknown. So the client gets the blocks of these requests, and can leave them as
// well.
func (q *requests) recall(s *space, deadline clock.Time) (err error) {
	for server := range q.asked {
		if r := &q.asked[server]; r.open && s.mem.has(server) {
			if e := s.ask(server, r.units, deadline); !errors.Is(e, memservice.ErrFull) {
				err = cmp.Or(err, e)
			}
		}
	}
	return err
}

// unknown reports whether any of the requests has an unknown outcome (request.open).
func (q *requests) unknown() bool {
	return slices.ContainsFunc(q.asked, func(r request) bool { return r.open })
}

// join waits until the thread that requests a block ahead has ended, if there is one.
func (q *requests) join() {
	if a := q.ahead; a != nil {
		_ = a.wait(clock.Never)
		q.ahead = nil
	}
}
