package clover

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// slotCall and slotReport are the answers that may be under way.
	slotCall, slotReport = 0, 1
	// callPatience bounds the first attempt of a call; each one that fails doubles the patience of the next, up to
	// maxCallPatience. An answer that took long makes the next call as patient: a server that is asked by many must not be asked by
	// all of them again, on new connections. busyPause is the time between two.
	callPatience    = 400 * time.Millisecond
	maxCallPatience = 3 * time.Second
	busyPause       = 200 * time.Microsecond
	closePatience   = time.Second
	// servedPatience is that of a request that the server's NIC has taken: it is shorter than the usual lease.
	servedPatience = 1500 * time.Millisecond
	// patienceFactor is how many times as long as the last answer took the next may take.
	patienceFactor = 4
)

// caller is the client's side of requests to the metadata server.
type caller struct {
	seq     uint32
	op      fabric.Op
	waiting uint32 // sequence number of the answer that the call waits for
	arrived bool
	answer  rpc.Answer
	bytes   []byte
	// patience of the next attempt; it is at least callPatience.
	patience time.Duration
}

// lease is how long the client may use what it knows.
type lease struct {
	client, epoch uint32
	length        time.Duration
	until         clock.Time
}

// notified hears that an answer has been written: the immediate data are its sequence number and slot.
func (c *Client) notified(imm uint32) {
	seq := imm >> 1
	switch {
	case imm&1 == slotReport:
		c.gc.answered(seq)
	case seq == c.call.waiting&0x7fffffff:
		c.call.arrived = true
	}
}

// send posts a request; its answer will come into slot.
func (c *Client) send(r *rpc.Request, o *fabric.Op, off, slot int) error {
	c.call.seq++
	r.Seq = c.call.seq<<1 | uint32(slot)
	r.Client, r.Epoch = c.lease.client, c.lease.epoch
	mr := c.fab.MR()
	r.BufAddr, r.BufRKey = mr.Addr()+uint64(c.at.answer), mr.RKey()
	c.call.bytes = r.AppendTo(c.call.bytes[:0])
	if err := mr.WriteAt(c.call.bytes, off); err != nil {
		return err
	}
	c.fab.Send(o, c.meta, off, len(c.call.bytes))
	return c.fab.Start(o)
}

// request makes one attempt of a call.
func (c *Client) request(r *rpc.Request, deadline clock.Time) (*rpc.Answer, error) {
	patience := max(c.call.patience, callPatience)
	c.call.patience = min(2*patience, maxCallPatience)
	if err := c.fab.Open(c.meta, deadline); err != nil {
		return nil, err
	}
	sent := c.rt.Now()
	c.cost.RPCs++
	c.call.arrived = false
	c.call.waiting = c.call.seq + 1
	if err := c.send(r, &c.call.op, c.at.request, slotCall); err != nil {
		return nil, err
	}
	answered := func() bool { return c.call.arrived || !c.fab.Connected(c.meta) }
	err := c.fab.Until(min(deadline, sent.Add(patience)), answered)
	if errors.Is(err, verbs.ErrTimeout) && c.call.op.Done {
		err = c.fab.Until(min(deadline, sent.Add(max(patience, servedPatience))), answered) // the server has the request
	}
	if err == nil && !c.call.arrived {
		err = &fabric.OpError{Op: c.call.op.WR.Op, Peer: c.cfg.Meta.String(), Status: c.call.op.Status}
	}
	if err != nil {
		return nil, errors.Join(err, c.fab.Break(c.meta))
	}
	c.call.patience = min(patienceFactor*c.rt.Now().Sub(sent), maxCallPatience)
	return c.readAnswer(r.Op, sent)
}

func (c *Client) readAnswer(op rpc.Op, sent clock.Time) (*rpc.Answer, error) {
	var b [rpc.MaxAnswer]byte
	if err := c.fab.MR().ReadAt(b[:], c.at.answer); err != nil {
		return nil, err
	}
	a := &c.call.answer
	if err := a.Parse(b[:], op); err != nil {
		return nil, err
	}
	if a.Status == rpc.Unknown || op == rpc.OpStat {
		return a, nil
	}
	c.renew(sent, a.Epoch)
	return a, nil
}

// renew extends the lease by an answer to a request that was sent at a time, and takes note of the epoch: locations of older
// epochs may be used again for other things.
func (c *Client) renew(sent clock.Time, epoch uint32) {
	c.lease.until = sent.Add(c.lease.length)
	if epoch != c.lease.epoch {
		c.lease.epoch = epoch
		c.cache.clear()
	}
}

// ask makes a call until it is answered or the deadline passes. A client that the server does not know says hello again.
func (c *Client) ask(r *rpc.Request, deadline clock.Time) (*rpc.Answer, error) {
	for {
		a, err := c.request(r, deadline)
		switch {
		case err == nil && a.Status == rpc.Unknown:
			if err := c.hello(deadline); err != nil {
				return nil, err
			}
			return &rpc.Answer{Status: rpc.Unknown}, nil
		case err == nil && a.Status != rpc.Busy:
			return a, nil
		case errors.Is(err, verbs.ErrClosed):
			return nil, err
		case c.rt.Now() >= deadline:
			return nil, fmt.Errorf("%w: %v at the metadata server: %w", kv.ErrTimeout, r.Op, orBusy(err))
		}
		c.rt.Sleep(busyPause)
	}
}

var errBusy = errors.New("it is busy")

func orBusy(err error) error {
	if err == nil {
		return errBusy
	}
	return err
}

// hello introduces the client, at first or after the server forgot it. What it knew is worthless then.
func (c *Client) hello(deadline clock.Time) error {
	c.cache.clear()
	for i := range c.spare {
		c.spare[i] = c.spare[i][:0]
	}
	c.gc.forget()
	r := rpc.Request{Op: rpc.OpHello}
	for {
		sent := c.rt.Now()
		a, err := c.request(&r, deadline)
		if err == nil && a.Status == rpc.OK && a.Welcome != nil {
			return c.welcome(a, sent)
		}
		if errors.Is(err, verbs.ErrClosed) {
			return err
		}
		if c.rt.Now() >= deadline {
			return fmt.Errorf("%w: no welcome from the metadata server: %w", kv.ErrTimeout, orBusy(err))
		}
		c.rt.Sleep(busyPause)
	}
}

func (c *Client) welcome(a *rpc.Answer, sent clock.Time) error {
	w := a.Welcome
	c.lease = lease{client: w.Client, epoch: a.Epoch, length: w.Lease, until: sent.Add(w.Lease)}
	c.space, c.format = w.Space, w.Format
	return c.addServers(w.Servers)
}

// begin starts an operation: the lease is renewed in good time, and what it covered is forgotten when it has ended.
func (c *Client) begin(deadline clock.Time) error {
	c.cost = kv.Cost{}
	if c.ended {
		return kv.ErrClosed
	}
	if err := c.fab.Poll(); err != nil {
		return err
	}
	c.hear()
	c.report(false)
	if err := c.renewInTime(deadline); !errors.Is(err, errLease) {
		return err
	}
	return c.hello(deadline)
}

// errLease says that the lease has ended: what the client knew and had may belong to others now.
var errLease = errors.New("the lease has ended")

// renewInTime keeps the lease: when half of it has passed, the metadata server is told that the client lives. That it does not
// answer is no harm as long as the lease holds.
func (c *Client) renewInTime(deadline clock.Time) error {
	now := c.rt.Now()
	if now < c.lease.until.Add(-c.lease.length/2) {
		return nil
	}
	if now < c.lease.until {
		a, err := c.request(&rpc.Request{Op: rpc.OpBeat}, min(deadline, c.lease.until))
		if err == nil && a.Status == rpc.Unknown {
			return errLease
		}
	}
	if c.rt.Now() >= c.lease.until {
		return errLease
	}
	return nil
}

// owns makes sure that a node is still this client's to write and to link.
func (c *Client) owns(n node, deadline clock.Time) error {
	if err := c.renewInTime(deadline); err != nil {
		return err
	}
	if n.client != c.lease.client {
		return errLease
	}
	return nil
}
