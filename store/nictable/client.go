package nictable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/rpc"
)

// Layout of the buffer for GETs: the item, then at noteAt the number of moves, then the request.
// bufferLen is the length in bytes of the private data with which a client names the buffer: its
// address and its R_Key.
const (
	wordLen   = 8
	bufferLen = 12
	askLen    = probes * redn.ProbeLen
	// getRecvs is how many receives a client has posted. One GET has at most three answers, so this
	// is more than enough.
	getRecvs = 8
	// openPause is the time between two attempts to connect. openTime is how long one attempt takes
	// at most: a process that hangs, or dies during the attempt, does not answer.
	openPause = time.Millisecond
	openTime  = time.Second
)

func noteAt(s Shape) int { return s.itemLen() }

// bufferFor returns the length of the buffer for GETs from a table.
func bufferFor(s Shape) int { return noteAt(s) + wordLen + max(askLen, probes*line) }

// ClientConfig describes a client.
type ClientConfig struct {
	// Context is the verbs context of the client. The caller closes it.
	Context verbs.Context
	Manager rdmacm.Dialer
	Params  rdmacm.Params
	// Server is the address of the host with the table.
	Server netip.Addr
	// Gets says how the client gets values, see store.ClientOptions.
	Gets string
}

// Client is one client of a table. One thread at a time uses it.
type Client struct {
	cfg   ClientConfig
	rt    *kv.Timeline
	shape Shape
	cost  kv.Cost
	ended bool

	calls  *remotemem.Fabric // for calls of the server's process: changes, and GETs by store.GetsServer
	caller rpc.Caller
	seq    uint32 // number of the last request
	out    []byte // the request as it is sent
	found  uint32 // length of the value in the last answer

	reads reader

	gets    *remotemem.Fabric // for GETs
	op      remotemem.Op
	base    uint64 // address of the table
	rkey    uint32 // R_Key of the table
	moves   uint64 // how many moves of keys the table had when the last GET ended
	version uint32 // version in the last answer with an item; 0 means that no answer had an item
	done    bool   // true if the last answer of the present GET has come
	in      []byte // the item as it has arrived
}

var _ kv.Timed = (*Client)(nil)

func Open(cfg ClientConfig, deadline clock.Time) (_ *Client, err error) {
	if err := checkWay(cfg.Gets); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, rt: kv.NewTimeline(cfg.Context.Runtime())}
	defer kv.CloseAfter(&err, c)
	const answerAt = requestHead + maxValue
	if c.calls, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: answerAt + answerLen + maxValue, Access: verbs.RemoteWrite}); err != nil {
		return nil, err
	}
	c.caller = rpc.Caller{Fabric: c.calls, Answer: answerAt, Name: cfg.Server.String()}
	c.calls.OnNotify(c.caller.Notify)
	dial := func(qp verbs.QP, until clock.Time) error {
		_, err := cfg.Manager.Dial(qp, cfg.Server, Service, cfg.Params, nil, until)
		return err
	}
	if _, err = c.calls.AddPeer(cfg.Server, 2, dial); err != nil {
		return nil, err
	}
	for { // a hello changes nothing, and may be sent again
		if err = c.call(opHello, 0, nil, min(deadline, c.rt.Now().Add(openTime))); err == nil || c.rt.Now() >= deadline || errors.Is(err, verbs.ErrClosed) {
			break
		}
		c.rt.Sleep(openPause)
	}
	if err != nil {
		return nil, err
	}
	if c.gets, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: bufferFor(c.shape), Access: verbs.RemoteWrite}); err != nil {
		return nil, err
	}
	c.gets.OnNotify(func(imm uint32) {
		if imm == redn.Miss {
			c.done = true
		} else {
			c.version = imm
		}
	})
	if _, err = c.gets.AddPeer(cfg.Server, getRecvs, c.dial); err != nil {
		return nil, err
	}
	return c, c.open(c.gets, deadline)
}

// dial connects a queue pair to the server, which makes a program for this client's GETs.
func (c *Client) dial(qp verbs.QP, until clock.Time) error {
	mr := c.gets.MR()
	private := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, mr.Addr()), mr.RKey())
	b, err := c.cfg.Manager.Dial(qp, c.cfg.Server, getService, c.cfg.Params, private, until)
	if err != nil {
		return err
	}
	const shapeAt = 2*wordLen + 4
	if len(b) < shapeAt+shapeLen {
		return fmt.Errorf("the server's private data have %d bytes", len(b))
	}
	shape, err := parseShape(b[shapeAt:])
	if err != nil {
		return err
	}
	if bufferFor(shape) > mr.Len() { // the table is not the one that the client was opened for
		return fmt.Errorf("the server has another table, for %v: open another client", shape)
	}
	c.shape, c.in = shape, make([]byte, shape.itemLen())
	c.base, c.moves = binary.BigEndian.Uint64(b), binary.LittleEndian.Uint64(b[wordLen:])
	c.rkey = binary.BigEndian.Uint32(b[2*wordLen:])
	return nil
}

// open connects the queue pair of a fabric to the server if it has no connection. It tries until the
// deadline. For a new connection of c.gets the server makes a program (see dial).
func (c *Client) open(f *remotemem.Fabric, deadline clock.Time) error {
	for {
		err := f.Open(0, min(deadline, c.rt.Now().Add(openTime)))
		switch {
		case err == nil, errors.Is(err, verbs.ErrClosed):
			return err
		case c.rt.Now() >= deadline:
			return errors.Join(kv.TimedOut(err), kv.ErrNoEffect)
		}
		c.rt.Sleep(openPause)
	}
}

// Get implements kv.Store. The server's NIC answers it, unless ClientConfig.Gets names another way.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	c.cost = kv.Cost{}
	if c.ended {
		return dst[:0], kv.ErrClosed
	}
	var failed error // error of the last request that failed; a part of the error at the deadline
	ask := c.ask
	switch c.cfg.Gets {
	case store.GetsReads:
		ask = c.fetch
	case store.GetsServer:
		return c.getFromServer(key, dst, deadline)
	}
	for ; ; c.cost.Retries++ {
		if c.rt.Now() >= deadline {
			return dst[:0], errors.Join(kv.ErrTimeout, kv.ErrNoEffect, failed)
		}
		if err := c.open(c.gets, deadline); err != nil {
			return dst[:0], errors.Join(err, failed)
		}
		before := c.moves
		if err := ask(fingerprint(key), deadline); err != nil {
			if errors.Is(err, verbs.ErrClosed) {
				return dst[:0], err
			}
			failed = err
			if err := c.gets.Break(0); err != nil { // so that a late answer cannot arrive during the next GET
				return dst[:0], err
			}
			continue
		}
		if c.version == 0 {
			if c.moves == before {
				return dst[:0], kv.ErrNotFound
			}
			continue // the key may have moved between the two probes
		}
		if err := c.gets.MR().ReadAt(c.in, 0); err != nil {
			return dst[:0], err
		}
		switch found, value, ok := unseal(c.in, c.version); {
		case ok && found == key:
			return append(dst[:0], value...), nil
		case ok: // another key has the fingerprint
			return dst[:0], kv.ErrNotFound
		}
	}
}

// ask sends one request to the program and waits for its answers.
func (c *Client) ask(f redn.Operand, deadline clock.Time) error {
	var b []byte
	for _, n := range c.shape.slotsOf(f) {
		b = redn.AppendProbe(b, f, c.base+uint64(c.shape.slotAt(n)))
	}
	mr, at := c.gets.MR(), noteAt(c.shape)+wordLen
	if err := mr.WriteAt(b, at); err != nil {
		return err
	}
	c.version, c.done = 0, false
	c.gets.Send(&c.op, 0, at, len(b))
	if err := c.gets.Start(&c.op); err != nil {
		return err
	}
	c.cost.RTTs++
	defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))
	if err := c.gets.Expect(0, deadline, func() bool { return c.done && c.op.Done }); err != nil {
		return err
	}
	if c.op.Status != verbs.Success {
		return &remotemem.OpError{Op: verbs.OpSend, Peer: c.cfg.Server.String(), Status: c.op.Status}
	}
	var note [wordLen]byte
	if err := mr.ReadAt(note[:], noteAt(c.shape)); err != nil {
		return err
	}
	c.moves = binary.LittleEndian.Uint64(note[:])
	return nil
}

func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.change(opPut, key, value, deadline)
}

func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.change(opInsert, key, value, deadline)
}

func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.change(opDelete, key, nil, deadline)
}

// change sends a change to the server's process.
func (c *Client) change(op byte, key uint64, value []byte, deadline clock.Time) error {
	c.cost = kv.Cost{}
	switch {
	case c.ended:
		return kv.ErrClosed
	case len(value) > c.shape.Value:
		return errors.Join(fmt.Errorf("%w: %d bytes, and the table is for up to %d", kv.ErrTooLarge, len(value), c.shape.Value), kv.ErrNoEffect)
	}
	err := c.call(op, key, value, deadline)
	if errors.Is(err, kv.ErrFull) {
		err = errors.Join(err, kv.ErrNoEffect)
	}
	return err
}

// call makes one call of the server. An error that is kv.ErrNoEffect means that the request was not
// sent. An error that is kv.ErrTimeout alone means that the server may execute the request.
func (c *Client) call(op byte, key uint64, value []byte, deadline clock.Time) error {
	if err := c.open(c.calls, deadline); err != nil {
		return err
	}
	c.seq++
	to := c.caller.Buffer()
	b := binary.BigEndian.AppendUint64(append(c.out[:0], op), to.Addr)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, to.RKey), c.seq)
	c.out = append(binary.BigEndian.AppendUint64(b, key), value...)
	if err := c.caller.Post(c.out, c.seq); err != nil {
		return errors.Join(kv.TimedOut(err), kv.ErrNoEffect, c.calls.Break(0))
	}
	c.cost.RTTs, c.cost.RPCs = c.cost.RTTs+1, c.cost.RPCs+1
	defer c.rt.Leave(c.rt.Enter(kv.PhaseRPC))
	err := c.caller.Wait(deadline)
	if err == nil {
		err = c.caller.Drain(deadline)
	}
	if err != nil {
		if errors.Is(err, verbs.ErrClosed) {
			return err
		}
		return errors.Join(kv.TimedOut(err), c.calls.Break(0))
	}
	var a [answerLen]byte
	if err := c.calls.MR().ReadAt(a[:], c.caller.Answer); err != nil {
		return err
	}
	if op == opGet {
		c.found = min(binary.BigEndian.Uint32(a[1:]), maxValue)
	} else {
		shape, err := parseShape(a[1:])
		if err != nil {
			return err
		}
		c.shape = shape
	}
	return statuses[min(int(a[0]), len(statuses)-1)]
}

// MaxValue returns the length of the longest value, in bytes.
func (c *Client) MaxValue() int { return c.shape.Value }

func (c *Client) Timeline() *kv.Timeline { return c.rt }

func (c *Client) Last() kv.Cost { return c.cost }

func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	var errs []error
	for _, f := range []*remotemem.Fabric{c.calls, c.gets} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
