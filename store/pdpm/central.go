package pdpm

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/store/rpc"
)

// CentralConfig describes a client of pDPM-Central.
type CentralConfig struct {
	// Context is the verbs context of the client. The caller closes it.
	Context verbs.Context
	// Manager connects queue pairs, with Params.
	Manager rdmacm.Dialer
	Params  rdmacm.Params
	// Coordinators are the addresses of the hosts that may run the coordinator, at least one.
	Coordinators []netip.Addr
}

// CentralClient is one client of pDPM-Central. It is used by one thread at a time.
type CentralClient struct {
	cfg   CentralConfig
	rt    *kv.Timeline
	fab   *remotemem.Fabric
	shape Shape
	// at is the coordinator to which the client sends. When it fails, the client sends to the next
	// one.
	at     int
	seq    uint32
	caller rpc.Caller
	// bytes is the request as it is sent, in is the answer as it arrived.
	bytes, in []byte
	cost      kv.Cost
	ended     bool
}

var _ kv.Timed = (*CentralClient)(nil)

// Times of a client.
const (
	// centralPause is the pause between the first two attempts of a request. Each further pause is
	// twice as long, up to centralPauses.
	centralPause  = 200 * time.Microsecond
	centralPauses = 10 * time.Millisecond
	// askAgain is how long the first attempt of a request that changes nothing waits for the
	// answer. Then the client connects again and repeats the request. Each attempt waits twice as
	// long as the one before.
	askAgain = 100 * time.Millisecond
	// answerMargin: the part 1/answerMargin of the time until the deadline is reserved for the
	// coordinator's answer to arrive.
	answerMargin = 8
)

// Lengths in the client's buffer, in bytes: first the request, then the answer.
const (
	requestArea = requestHead + maxValue
	answerArea  = answerHead + maxValue
)

func OpenCentral(cfg CentralConfig, deadline clock.Time) (_ *CentralClient, err error) {
	if len(cfg.Coordinators) == 0 {
		return nil, errors.New("no host that may run the coordinator: want at least one")
	}
	c := &CentralClient{cfg: cfg, rt: kv.NewTimeline(cfg.Context.Runtime()), in: make([]byte, answerArea)}
	c.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: requestArea + answerArea, Access: verbs.LocalWrite | verbs.RemoteWrite})
	if err != nil {
		return nil, err
	}
	defer kv.CloseAfter(&err, c.fab)
	c.caller = rpc.Caller{Fabric: c.fab, Answer: requestArea}
	c.fab.OnNotify(c.caller.Notify)
	for _, addr := range cfg.Coordinators {
		_, err := c.fab.AddPeer(addr, 2, func(qp verbs.QP, until clock.Time) error {
			_, err := cfg.Manager.Dial(qp, addr, CentralService, cfg.Params, nil, until)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	a, err := c.call(&query{op: opHello}, deadline)
	if err != nil {
		return nil, err
	}
	if len(a.value) != passive.SuperLen {
		return nil, errMessage
	}
	// no limit here: the coordinator has checked that the table fits
	super, err := central.Parse(a.value, math.MaxInt)
	c.shape = shapeOf(super.Numbers)
	return c, err
}

// call asks the coordinator to execute an operation. It repeats a request that changes nothing, and
// one that the coordinator has not executed. With kv.ErrNoEffect nothing was changed. With any
// other error the outcome is unknown.
func (c *CentralClient) call(q *query, deadline clock.Time) (a answer, err error) {
	var last error
	pause := centralPause
	next := func() {
		c.rt.Sleep(pause)
		pause = min(2*pause, centralPauses)
		c.at = (c.at + 1) % len(c.cfg.Coordinators)
	}
	for wait := askAgain; ; wait, c.cost.Retries = 2*wait, c.cost.Retries+1 {
		if c.rt.Now() >= deadline {
			return a, errors.Join(kv.TimedOut(last), kv.ErrNoEffect)
		}
		if err := c.fab.Open(c.at, deadline); err != nil {
			last = err
			next()
			continue
		}
		until := deadline
		if !q.op.changes() {
			until = min(deadline, c.rt.Now().Add(wait))
		}
		posted, err := c.send(q, until)
		if err == nil {
			err = c.receive(&a)
		}
		switch {
		case err == nil && a.status != deposed:
			return a, nil
		case errors.Is(err, verbs.ErrClosed):
			return a, err
		case err != nil && posted && q.op.changes():
			return a, errors.Join(kv.TimedOut(err), c.fab.Break(c.at))
		case err == nil:
			err = errDeposed
		}
		last = errors.Join(err, c.fab.Break(c.at))
		next()
	}
}

// send sends a request and waits until the answer has come. posted reports whether the coordinator
// may have the request.
func (c *CentralClient) send(q *query, deadline clock.Time) (posted bool, err error) {
	c.seq++
	c.caller.Peer, c.caller.Name = c.at, c.cfg.Coordinators[c.at].String()
	left, to := deadline.Sub(c.rt.Now()), c.caller.Buffer()
	q.seq, q.addr, q.rkey = c.seq, to.Addr, to.RKey
	q.patience = min(left-left/answerMargin, maxPatience)
	c.bytes = q.appendTo(c.bytes[:0])
	if err := c.caller.Post(c.bytes, c.seq); err != nil {
		return false, err
	}
	c.cost.RTTs++
	c.cost.RPCs++
	defer c.rt.Leave(c.rt.Enter(kv.PhaseRPC))
	return true, c.caller.Wait(deadline)
}

// receive reads the answer from the buffer and adds its costs to those of the operation.
func (c *CentralClient) receive(a *answer) error {
	if err := c.fab.MR().ReadAt(c.in, requestArea); err != nil {
		return err
	}
	if err := a.parse(c.in); err != nil {
		return err
	}
	c.cost.RTTs += a.trips
	c.cost.Retries += a.waits
	return nil
}

func (c *CentralClient) do(q *query, deadline clock.Time) ([]byte, error) {
	c.cost = kv.Cost{}
	switch {
	case c.ended:
		return nil, kv.ErrClosed
	case len(q.value) > c.shape.Value:
		return nil, errors.Join(fmt.Errorf("%w: %d bytes, and the table is for up to %d", kv.ErrTooLarge, len(q.value), c.shape.Value), kv.ErrNoEffect)
	case q.key+1 == 0 && q.op == opInsert:
		return nil, errors.Join(passive.ErrKey, kv.ErrNoEffect)
	case q.key+1 == 0:
		return nil, kv.ErrNotFound
	}
	a, err := c.call(q, deadline)
	if err != nil {
		return nil, err
	}
	switch a.status {
	case notFound:
		return nil, kv.ErrNotFound
	case exists:
		return nil, kv.ErrExists
	case full:
		err := fmt.Errorf("%w: each of the %d entries of the key's server has a key; `rdmalab pdpm-central start --fresh --entries %d` makes an empty table with twice the room",
			kv.ErrFull, c.shape.Entries, 2*c.shape.Entries)
		return nil, errors.Join(err, kv.ErrNoEffect)
	case lost:
		return nil, errors.Join(kv.ErrLost, kv.ErrNoEffect)
	case failed:
		return nil, errors.Join(kv.TimedOut(errors.New("the memory server of the key did not answer the coordinator in time")), kv.ErrNoEffect)
	case doubtful:
		return nil, kv.TimedOut(errors.New("the memory server of the key did not acknowledge the new value in time"))
	case done, deposed, statusEnd:
	}
	return a.value, nil
}

func (c *CentralClient) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	v, err := c.do(&query{op: opGet, key: key}, deadline)
	return append(dst[:0], v...), err
}

func (c *CentralClient) Put(key uint64, value []byte, deadline clock.Time) error {
	_, err := c.do(&query{op: opPut, key: key, value: value}, deadline)
	return err
}

func (c *CentralClient) Insert(key uint64, value []byte, deadline clock.Time) error {
	_, err := c.do(&query{op: opInsert, key: key, value: value}, deadline)
	return err
}

func (c *CentralClient) Delete(key uint64, deadline clock.Time) error {
	_, err := c.do(&query{op: opDelete, key: key}, deadline)
	return err
}

// MaxValue returns the length of the longest value, in bytes.
func (c *CentralClient) MaxValue() int { return c.shape.Value }

func (c *CentralClient) Timeline() *kv.Timeline { return c.rt }

// Last implements kv.Store. RTTs counts the round trips that followed each other: those from the
// client to the coordinator, and those from the coordinator to memory servers.
func (c *CentralClient) Last() kv.Cost { return c.cost }

func (c *CentralClient) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	return c.fab.Close()
}
