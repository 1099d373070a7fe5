package clover

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/lease"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// session has a client's connections to the metadata server and the memory servers, its calls, and
// its lease.
type session struct {
	cfg Config
	rt  *kv.Timeline
	fab *remotemem.Fabric
	at  areas
	// slab is scratch memory for one node of the largest class that the client uses.
	slab []byte

	meta    int // the metadata server's number in fab
	servers []server
	addrs   []netip.Addr // addresses of servers
	space   layout.Space
	format  layout.Format

	call  caller
	lease membership
	// settleAt is the time before which settleDown does nothing.
	settleAt clock.Time
	// own has the locations that the client remembers; nil if it shares a cache with other clients.
	// spare has, by class, the nodes that the client was given and has not used. gc has the appends
	// that the client must report. hello empties all three.
	own   *Cache
	spare [layout.Classes][]layout.Location
	gc    reports

	cost  kv.Cost // cost of the current operation
	ops   [3]remotemem.Op
	ended bool
}

const (
	// slotCall and slotReport are the two slots in the client's buffer for answers: one for the
	// answer to a call, one for the answer to a report. One call and one report may be in flight at
	// the same time.
	slotCall, slotReport = 0, 1
	// callTimeout is the timeout of the client's first attempt of a call, and the shortest timeout
	// of any attempt. Each failed attempt doubles the next timeout, up to maxCallTimeout. After an
	// answer, the next timeout is timeoutFactor times as long as the answer took, within the same
	// limits: clients of an overloaded metadata server must not all repeat their requests on new
	// connections. busyPause is the pause between two attempts. In ask, each further attempt
	// doubles the pause, up to maxBusyPause. closeTimeout limits Close.
	callTimeout    = 400 * time.Millisecond
	maxCallTimeout = 3 * time.Second
	busyPause      = 200 * time.Microsecond
	maxBusyPause   = 5 * time.Millisecond
	closeTimeout   = time.Second
	// memoryPause is how long a client waits after it has found that a memory server has lost its
	// memory. Meanwhile the metadata server handles the loss.
	memoryPause = 5 * time.Millisecond
	// servedTimeout is the shortest timeout of a request that the metadata server's NIC has
	// acknowledged. It is shorter than the default lease of 2 s.
	servedTimeout = 1500 * time.Millisecond
	timeoutFactor = 4
)

// caller is the state of the client's requests to the metadata server. The embedded Caller sends
// calls, whose answers an operation waits for. session.report sends reports, whose answers no
// operation waits for.
type caller struct {
	calls.Caller
	seq    uint32
	answer rpc.Answer
	bytes  []byte
	// timeout is the timeout of the next attempt. An attempt waits at least callTimeout.
	timeout time.Duration
}

// membership is what a client has from the metadata server: its number, the epoch in which its
// locations are valid, and the lease during which it may use them.
type membership struct {
	lease.Term
	client, epoch uint32
	// owner is the owner number under which the client connects to memory servers; 0 means that the
	// client needs one.
	owner uint32
	// incarnation is the incarnation of the metadata server. Each incarnation counts epochs from 1.
	incarnation uint32
	// confirmed is the epoch that the client has confirmed: no request of the client that names a
	// location of an earlier epoch is in flight any more.
	confirmed uint32
	// reportAt is when the client next reports its appends even if they are fewer than
	// Config.Records.
	reportAt clock.Time
	// clock is the highest Answer.Clock that the client has received from this incarnation.
	clock uint64
	// granted is how many nodes the metadata server gave at the last request; 0 means that there was
	// none. If there are few, the client reports its appends sooner: see session.enough.
	granted int
	// scarce is true if the metadata server has asked clients to return spare nodes.
	scarce bool
	// taken is an upper limit for the number of nodes that the client was given and that are
	// neither spare nor known to be linked. It includes nodes in answers that were lost, and nodes
	// whose return was not answered.
	taken int
}

// notified is called when the metadata server has written an answer into the client's buffer. imm,
// the immediate data of that WRITE, is the Seq of the answered request.
func (c *session) notified(imm uint32) {
	if imm&1 == slotReport {
		c.gc.answered(imm >> 1)
	}
	c.call.Notify(imm)
}

// message encodes a request. The metadata server will write the answer into the given slot. The
// request also confirms the client's epoch, if no request and no report of the client can still
// name a location of an earlier epoch. With Config.Reporter, message first hands collected appends
// to the Reporter: the client confirms the epoch only when the server has its appends of earlier
// epochs.
func (c *session) message(r *rpc.Request, slot int) []byte {
	if c.cfg.Reporter != nil && c.lease.confirmed != c.lease.epoch {
		c.report(true)
	}
	c.call.seq++
	r.Seq = c.call.seq<<1 | uint32(slot)
	if c.quiet() && (c.cfg.Reporter == nil || c.gc.are(c.lease.epoch)) {
		c.lease.confirmed = c.lease.epoch
	}
	r.Client, r.Epoch = c.lease.client, c.lease.confirmed
	buffer := c.call.Buffer()
	r.BufAddr, r.BufRKey = buffer.Addr, buffer.RKey
	c.call.bytes = r.AppendTo(c.call.bytes[:0])
	return c.call.bytes
}

// request makes one attempt of a call and waits for the answer.
func (c *session) request(r *rpc.Request, deadline clock.Time) (*rpc.Answer, error) {
	timeout := max(c.call.timeout, callTimeout)
	c.call.timeout = min(2*timeout, maxCallTimeout)
	if !c.fab.Connected(c.meta) {
		c.lease.taken += c.gc.abandon()
	}
	if err := c.fab.Open(c.meta, deadline); err != nil {
		return nil, err
	}
	defer c.rt.Leave(c.rt.Enter(kv.PhaseRPC))
	sent := c.rt.Now()
	c.cost.RPCs++
	b := c.message(r, slotCall)
	if err := c.call.Post(b, r.Seq); err != nil {
		return nil, err
	}
	err := c.call.Wait(min(deadline, sent.Add(timeout)))
	if errors.Is(err, verbs.ErrTimeout) && c.call.Acknowledged() {
		// The server's NIC has acknowledged the request, so the answer is only slow.
		err = c.call.Wait(min(deadline, sent.Add(max(timeout, servedTimeout))))
	}
	if err != nil {
		return nil, errors.Join(err, c.fab.Break(c.meta))
	}
	c.call.timeout = min(timeoutFactor*c.rt.Now().Sub(sent), maxCallTimeout)
	return c.readAnswer(r.Op, sent)
}

// readAnswer reads the answer to a call that was sent at time `sent`. The answer extends the lease,
// except in three cases: the server does not know the client; the call is OpStat, which the server
// answers without looking for the client; or the call is OpHello, whose answer begins another lease
// (see welcome).
func (c *session) readAnswer(op rpc.Op, sent clock.Time) (*rpc.Answer, error) {
	var b [rpc.MaxAnswer]byte
	if err := c.fab.MR().ReadAt(b[:], c.at.answer); err != nil {
		return nil, err
	}
	a := &c.call.answer
	if err := a.Parse(b[:], op); err != nil {
		return nil, err
	}
	if a.Status == rpc.Unknown || op == rpc.OpStat || op == rpc.OpHello {
		return a, nil
	}
	c.renew(sent, a)
	return a, nil
}

// renew extends the lease after the answer a to a request that was sent at the time `sent`. If the
// answer names a newer epoch, renew makes it the client's epoch and forgets all locations, because
// they may name other nodes now. The client may read the answer to a report after the answers to
// later calls, so the answer may also name an older epoch.
func (c *session) renew(sent clock.Time, a *rpc.Answer) {
	c.lease.Extend(sent)
	c.lease.scarce, c.lease.clock = a.Scarce, max(c.lease.clock, a.Clock)
	if int32(a.Epoch-c.lease.epoch) > 0 {
		c.lease.epoch = a.Epoch
		c.forgetLocations()
	}
}

// ask repeats a call until the answer is not Busy, or the deadline passes. If the server does not
// know the client, ask calls hello and returns an answer with status Unknown.
func (c *session) ask(r *rpc.Request, deadline clock.Time) (*rpc.Answer, error) {
	for pause := busyPause; ; pause = min(2*pause, maxBusyPause) {
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
		case err != nil && r.Op == rpc.OpAlloc:
			c.lease.taken += r.N // the answer may be lost; its nodes count as taken
		case err == nil && r.Op == rpc.OpAlloc:
			c.giveBack(deadline)   // other clients may wait for nodes, too
			c.settleDown(deadline) // the server may wait for this client to confirm an epoch
		}
		if c.rt.Now() >= deadline {
			return nil, fmt.Errorf("%w: %v at the metadata server: %w", kv.ErrTimeout, r.Op, cmp.Or(err, errBusy))
		}
		c.pause(pause, deadline)
	}
}

// pause waits for d before the next attempt, but not beyond the deadline.
func (c *session) pause(d time.Duration, deadline clock.Time) {
	c.rt.Sleep(min(d, max(0, deadline.Sub(c.rt.Now()))))
}

// giveBack returns spare nodes to the metadata server. n is how many nodes were in answered
// requests. The server takes the nodes of an unanswered request back when the lease ends.
func (c *session) giveBack(deadline clock.Time) (n int) {
	for class := range c.spare {
		for len(c.spare[class]) > 0 {
			r := rpc.Request{Op: rpc.OpReturn}
			for r.N < rpc.MaxBatch && len(c.spare[class]) > 0 {
				last := len(c.spare[class]) - 1
				r.Records[r.N].New = c.spare[class][last]
				c.spare[class] = c.spare[class][:last]
				r.N++
			}
			if _, err := c.request(&r, deadline); err != nil {
				c.lease.taken += r.N
				return n
			}
			n += r.N
		}
	}
	return n
}

var errBusy = errors.New("the server is busy")

// hello introduces the client to the metadata server: in Open, and again when the lease has ended,
// the server has forgotten the client, or a memory server has lost the store's memory. The client
// drops its spare nodes, because they may belong to other clients by now. It also ends its lease at
// once: when the metadata server gets the OpHello, it takes back the nodes of the client's former
// number, even if the client never gets the answer.
func (c *session) hello(deadline clock.Time) error {
	c.lease.End()
	c.forgetLocations()
	for i := range c.spare {
		c.spare[i] = c.spare[i][:0]
	}
	c.gc.forget()
	r := rpc.Request{Op: rpc.OpHello}
	for {
		r.Quiet, r.Owner = c.quiet(), c.lease.owner
		sent := c.rt.Now()
		a, err := c.request(&r, deadline)
		if err == nil && a.Status == rpc.OK && a.Welcome != nil {
			return c.welcome(a, sent)
		}
		if errors.Is(err, verbs.ErrClosed) {
			return err
		}
		if c.rt.Now() >= deadline {
			return fmt.Errorf("%w: no welcome from the metadata server: %w", kv.ErrTimeout, cmp.Or(err, errBusy))
		}
		if err == nil && c.copied() {
			c.pause(maxBusyPause, deadline) // the set of servers whose copies count is changing
		}
		c.pause(busyPause, deadline)
	}
}

func (c *session) welcome(a *rpc.Answer, sent clock.Time) error {
	w := a.Welcome
	c.lease = membership{
		Term: lease.Begin(w.Lease, sent), client: w.Client, owner: w.Owner, incarnation: w.Incarnation, epoch: a.Epoch, confirmed: a.Epoch,
		clock: a.Clock, scarce: a.Scarce,
	}
	c.space, c.format = w.Space, w.Format
	return c.addServers(w.Servers)
}

// begin is called at the start of each operation. It reports appends and gives back spare nodes if
// that is due, renews the lease if half of it has passed, and calls hello if the lease has ended.
func (c *appender) begin(deadline clock.Time) error {
	c.session.cost = kv.Cost{}
	if c.session.ended {
		return kv.ErrClosed
	}
	if err := c.session.fab.Poll(); err != nil {
		return err
	}
	c.session.hear()
	c.session.settleDown(deadline)
	c.session.report(c.session.lease.scarce || c.session.due())
	if c.session.lease.scarce {
		c.session.giveBack(min(deadline, c.session.lease.Until))
	}
	if c.session.gc.dropped && c.session.fab.Connected(c.session.meta) {
		return c.session.hello(deadline) // the server then looks for all nodes that the client has linked
	}
	if err := c.session.renewInTime(deadline); !errors.Is(err, errLease) {
		return err
	}
	return c.session.hello(deadline)
}

// settlePause is the shortest time between two attempts of settleDown. settlePatience is the
// longest time of one attempt.
const (
	settlePause    = 100 * time.Millisecond
	settlePatience = 20 * time.Millisecond
)

// settleDown does what the client must do before it can confirm a new epoch: it connects again to
// each memory server to which its connection has failed. The server then ends the old connection,
// so that no request on it can arrive any more. While a memory server does not answer, the client
// cannot confirm the epoch.
func (c *session) settleDown(deadline clock.Time) {
	now := c.rt.Now()
	if c.lease.confirmed == c.lease.epoch || now < c.settleAt {
		return
	}
	for i := range c.servers {
		if s := &c.servers[i]; s.conn != 0 && !c.fab.Connected(s.peer) {
			// if this fails, the next operation on that server returns the error
			_ = c.reach(i, min(deadline, now.Add(settlePatience)))
		}
	}
	c.settleAt = c.rt.Now().Add(settlePause)
}

// errLease means that the lease has ended. The client's locations and nodes may belong to other
// clients now.
var errLease = errors.New("the lease has ended")

// due reports whether the client must report its appends even if they are few. It returns true once
// in half a lease.
func (c *session) due() bool {
	now := c.rt.Now()
	if now < c.lease.reportAt {
		return false
	}
	c.lease.reportAt = now.Add(c.lease.Length / 2)
	return true
}

// renewInTime renews the lease by OpBeat when half of it has passed. A missing answer does no harm
// while the lease is valid. When the lease has ended, or the server no longer knows the client,
// renewInTime returns errLease.
func (c *session) renewInTime(deadline clock.Time) error {
	now := c.rt.Now()
	if !c.lease.Due(now) {
		return nil
	}
	if c.lease.Valid(now) {
		a, err := c.request(&rpc.Request{Op: rpc.OpBeat}, min(deadline, c.lease.Until))
		if err == nil && a.Status == rpc.Unknown {
			return errLease
		}
	}
	if !c.lease.Valid(c.rt.Now()) {
		return errLease
	}
	return nil
}

// owns first renews the lease if necessary (renewInTime). It returns errLease if the client may no
// longer write or link the node n.
func (c *session) owns(n node, deadline clock.Time) error {
	if err := c.renewInTime(deadline); err != nil {
		return err
	}
	if n.client != c.lease.client {
		return errLease
	}
	return nil
}
