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
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// session is a program's connection to the daemon that owns the NIC. It carries calls, their
// answers, and asynchronous events.
type session struct {
	conn *net.UnixConn
	// patience is how long a Context (an open device) waits for an answer of the daemon before it
	// gives up the connection.
	patience time.Duration
	writing  sync.Mutex // held while one message is written

	wakes wakes
	gone  atomic.Bool   // true when the connection has ended, for any reason
	dead  chan struct{} // closed when gone becomes true

	mu       sync.Mutex             // guards the fields below
	calls    map[uint64]chan answer // waiting calls by request ID
	nextCall uint64                 // the newest request ID
	events   []verbs.AsyncEvent
	reason   error // why giveUp has ended the connection; nil means that giveUp has not done so
	failure  error // why the connection has ended; nil while it lasts
	closed   bool
}

// answer is the daemon's reply to a call with the reply's file descriptors, or the error because of
// which there is no reply.
type answer struct {
	reply proto.Reply
	fds   []int
	err   error
}

// call makes a request, waits for the answer and decodes its result into out, unless out is nil.
func (c *session) call(op proto.Op, args, out any) error {
	fds, err := c.callFiles(op, args, out)
	ring.CloseFiles(fds...) // a correct daemon sends no descriptors here
	return err
}

// callFiles does what call does, and returns the file descriptors that came with the answer. The
// caller must close the descriptors.
func (c *session) callFiles(op proto.Op, args, out any) ([]int, error) {
	a, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	req, ch, err := c.send(op, a)
	if err != nil {
		c.mu.Lock()
		why := c.reason
		c.mu.Unlock()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			if why == nil {
				why = errors.New("the daemon is gone")
			}
			err = verbs.Errorf(string(op), verbs.ErrClosed, "%v", why)
		}
		return nil, err
	}
	r := c.await(req, args, ch)
	if r.err != nil {
		return nil, verbs.Errorf(string(op), verbs.ErrClosed, "%v", r.err)
	}
	if err := r.reply.Error.Err(); err != nil {
		return r.fds, err
	}
	if out != nil {
		err = json.Unmarshal(r.reply.Result, out)
	}
	return r.fds, err
}

// send sends a request, and returns the channel on which its answer comes.
func (c *session) send(op proto.Op, args []byte) (req proto.Request, ch chan answer, err error) {
	ch = make(chan answer, 1)
	c.mu.Lock()
	if c.failure != nil {
		defer c.mu.Unlock()
		return req, nil, c.lost(string(op))
	}
	c.nextCall++
	req = proto.Request{ID: c.nextCall, Op: op, Args: args}
	c.calls[req.ID] = ch
	c.mu.Unlock()
	b, err := json.Marshal(req)
	switch {
	case err != nil:
	case len(b) > proto.MaxMessage:
		err = verbs.Errorf(string(op), verbs.ErrInvalid, "%d bytes are too much for one request; at most %d", len(b), proto.MaxMessage)
	default:
		err = c.write(b)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.calls, req.ID)
		c.mu.Unlock()
	}
	return req, ch, err
}

// over returns the error of an operation op that fails because the connection has ended.
func (c *session) over(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost(op)
}

// lost returns the error of an operation op that fails because the connection has ended. The caller
// holds mu.
func (c *session) lost(op string) error {
	return verbs.Errorf(op, verbs.ErrClosed, "%v", c.failure)
}

// write sends a request. The socket takes a message as a whole or not at all, so write can try
// again. If the socket stays full for the patience, write abandons the daemon. As in await, time in
// which the host hangs counts as one try at most.
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
	// leastPatience is the smallest patience. It is not shorter, because the daemon shares its
	// processors with other programs.
	leastPatience = time.Second
	mostPatience  = 365 * 24 * time.Hour // small enough that no time overflows
	// looks is the number of checks within one patience. In each check a waiting call asks whether the
	// daemon responds. The call counts checks instead of time: a hang of the host stops both daemon
	// and program, and when the host resumes, at most one check has been used up.
	looks = 30
)

// await waits for the answer to a request. At intervals it asks the daemon whether the request is
// still in progress. It ends the session in these cases, because the outcome of the request is then
// unknown:
//
//   - the daemon does not say within the patience whether the request is in progress: it hangs, or
//     does not read;
//   - the daemon does not know the request, and no answer has arrived before: the answer was lost;
//   - the request is in progress, but its time limit has passed by more than the patience.
//
// Otherwise the wait continues, because a request that waits for a peer may take any time.
func (c *session) await(req proto.Request, args any, ch <-chan answer) answer {
	look := c.patience / looks
	timer := time.NewTimer(look)
	defer timer.Stop()
	left := -1 // number of checks until a request with a time limit must have been answered; −1: no limit
	if limit, ok := proto.TimeLimit(args); ok {
		left = looks + 1 + int(limit/look)
	}
	asked := 0 // number of checks since ask sent the question that the daemon has not answered yet
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
		case state == nil && req.Op != proto.OpHello: // the hello has its own deadline
			state, asked = c.ask(req.ID), 0
		case state != nil:
			if asked++; asked >= looks {
				c.giveUp("the daemon has not answered for %v, not even whether it works on %s", c.patience, req.Op)
			}
		}
	}
}

// ask asks the daemon whether a request is still in progress.
func (c *session) ask(id uint64) chan answer {
	a, err := json.Marshal(proto.Progress{ID: id})
	if err != nil {
		return nil // a Progress can always be encoded
	}
	_, ch, err := c.send(proto.OpProgress, a)
	if err != nil {
		return nil // the session is ending: the method fail ends the request that waits
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
		ring.CloseFiles(r.fds...)
		c.wakes.all()
		return
	}
	ch <- r
}

// giveUp ends the connection to a daemon that does not respond; the receiving goroutine then fails
// all waiting calls. Later reasons are ignored.
func (c *session) giveUp(format string, args ...any) {
	c.mu.Lock()
	if c.reason == nil {
		c.reason = fmt.Errorf(format+"; the context was ended, open another one", args...)
	}
	c.mu.Unlock()
	_ = c.conn.Close() // a second Close does nothing
}

// fail ends the session: all waiting calls fail. The cause is err, unless giveUp or Close has ended
// the connection.
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
