package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// session is the connection to the daemon: calls and their answers, and the events between them.
type session struct {
	conn *net.UnixConn
	// patience is how long the daemon may be silent.
	patience time.Duration
	writing  sync.Mutex // held while one message is written

	wakes wakes
	gone  atomic.Bool   // the daemon has ended or was given up
	dead  chan struct{} // closed when gone is set

	mu       sync.Mutex // guards the fields below
	calls    map[uint64]chan answer
	nextCall uint64
	events   []verbs.AsyncEvent
	reason   error // why this side has ended the connection
	failure  error // why the connection has ended
	closed   bool
}

// answer is a reply with its file descriptors.
type answer struct {
	reply proto.Reply
	fds   []int
	err   error
}

// call makes a request and waits for the answer; out may be nil.
func (c *session) call(op proto.Op, args, out any) error {
	fds, err := c.callFiles(op, args, out)
	closeFiles(fds) // of a daemon that breaks the protocol
	return err
}

// callFiles is call for answers that carry file descriptors, which are the caller's.
func (c *session) callFiles(op proto.Op, args, out any) ([]int, error) {
	a, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.failure != nil {
		defer c.mu.Unlock()
		return nil, c.lost(string(op))
	}
	c.nextCall++
	req := proto.Request{ID: c.nextCall, Op: op, Args: a}
	c.calls[req.ID] = ch
	c.mu.Unlock()
	b, err := json.Marshal(req)
	switch {
	case err != nil:
	case len(b) > proto.MaxMessage:
		err = opError(string(op), verbs.ErrInvalid, "%d bytes are too much for one request", len(b))
	default:
		err = c.write(b)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.calls, req.ID)
		why := c.reason
		c.mu.Unlock()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			if why == nil {
				why = errors.New("the daemon is gone")
			}
			err = opError(string(op), verbs.ErrClosed, "%v", why)
		}
		return nil, err
	}
	r := c.await(req, args, ch)
	if r.err != nil {
		return nil, opError(string(op), verbs.ErrClosed, "%v", r.err)
	}
	if err := r.reply.Error.Err(); err != nil {
		return r.fds, err
	}
	if out != nil {
		err = json.Unmarshal(r.reply.Result, out)
	}
	return r.fds, err
}

// over is the error of an operation that needs a daemon that is gone.
func (c *session) over(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost(op)
}

// lost is the error of a call to a daemon that is gone. The caller holds mu.
func (c *session) lost(op string) error {
	return opError(op, verbs.ErrClosed, "%v", c.failure)
}

// write sends a request. When the socket stays full, the daemon is given up after as many looks as
// in await. A message is written as a whole or not at all, so a write can be repeated.
func (c *session) write(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	for range looks {
		err := c.conn.SetWriteDeadline(time.Now().Add(c.patience / looks))
		if err == nil {
			_, err = c.conn.Write(b)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	c.giveUp("the daemon has read no request for %v", c.patience)
	return net.ErrClosed
}

const (
	defaultPatience = 30 * time.Second
	// leastPatience is the least bound for a daemon that shares its processors with other programs.
	leastPatience = time.Second
	mostPatience  = 365 * 24 * time.Hour // far from an overflow of times
	// looks is how often a waiting call checks on the daemon within the patience. The call counts
	// checks, not time: a host that hangs stops daemon and program, and when it resumes, at most
	// one check has been used up.
	looks = 30
)

// await waits for the answer to a request. After each look it asks the daemon whether it still
// works on the request:
//
//   - no answer to that within the patience: the daemon hangs, or does not read;
//   - the daemon does not work on it, and the answer did not arrive before this one: it was lost;
//   - the daemon works on it, but the request's time limit has passed by more than the patience.
//
// Each of these ends the context, because the outcome of the request is unknown. Otherwise the wait
// goes on: a peer may take any time.
func (c *session) await(req proto.Request, args any, ch <-chan answer) answer {
	look := c.patience / looks
	timer := time.NewTimer(look)
	defer timer.Stop()
	left := -1 // looks until a request with a time limit must have been answered
	if limit, ok := proto.TimeLimit(args); ok {
		left = looks + 1 + int(limit/look)
	}
	asked := 0 // looks since the unanswered question
	var state chan answer
	for {
		select {
		case r := <-ch:
			return r
		case r := <-state:
			state = nil
			var p proto.Progress
			if r.err == nil && r.reply.Error == nil && json.Unmarshal(r.reply.Result, &p) == nil && !p.Working && len(ch) == 0 {
				c.giveUp("the daemon has lost %s", req.Op)
			}
			continue
		case <-timer.C:
			timer.Reset(look)
		}
		if left--; left == 0 {
			c.giveUp("the daemon has not ended %s, %v after its time limit", req.Op, c.patience)
		}
		switch {
		case state == nil && req.Op != proto.OpHello: // which has a deadline of its own
			state, asked = c.ask(req.ID), 0
		case state != nil:
			if asked++; asked >= looks {
				c.giveUp("the daemon has not answered for %v, not even whether it works on %s", c.patience, req.Op)
			}
		}
	}
}

// ask asks whether the daemon still works on a request.
func (c *session) ask(id uint64) chan answer {
	ch := make(chan answer, 1)
	a, err := json.Marshal(proto.Progress{ID: id})
	if err != nil {
		return nil // a Progress can always be encoded
	}
	c.mu.Lock()
	if c.failure != nil {
		c.mu.Unlock()
		return nil // fail has answered the request itself
	}
	c.nextCall++
	req := proto.Request{ID: c.nextCall, Op: proto.OpProgress, Args: a}
	c.calls[req.ID] = ch
	c.mu.Unlock()
	b, err := json.Marshal(req)
	if err == nil {
		err = c.write(b)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.calls, req.ID)
		c.mu.Unlock()
		return nil
	}
	return ch
}

func (c *session) deliver(r answer) {
	c.mu.Lock()
	ch := c.calls[r.reply.ID]
	delete(c.calls, r.reply.ID)
	if r.reply.ID == 0 && r.reply.Event != nil && len(c.events) < maxEvents {
		c.events = append(c.events, *r.reply.Event)
	}
	c.mu.Unlock()
	if ch == nil {
		closeFiles(r.fds)
		c.wakes.all()
		return
	}
	ch <- r
}

// giveUp ends the connection with a daemon that does not respond; the receiving goroutine then
// fails all waiting calls. The first reason counts.
func (c *session) giveUp(format string, args ...any) {
	c.mu.Lock()
	if c.reason == nil {
		c.reason = fmt.Errorf(format+"; the context was ended, open another one", args...)
	}
	c.mu.Unlock()
	_ = c.conn.Close() // a second close does nothing
}

// fail ends the session: all waiting calls fail with err.
func (c *session) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reason != nil:
		err = c.reason
	case c.closed:
		err = errors.New("the context was closed")
	}
	c.failure = err
	close(c.dead)
	c.gone.Store(true)
	for id, ch := range c.calls {
		ch <- answer{err: err}
		delete(c.calls, id)
	}
	c.wakes.all()
}
