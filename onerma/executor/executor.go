package executor

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Transfer is a READ or WRITE of any size.
type Transfer struct {
	Op    onerma.Op
	Class uint8
	// Target is the address of the peer. Remote is the peer's region with the bytes, from Offset
	// on.
	Target netip.Addr
	Remote nic.RegionID
	Offset uint64
	Length int // bytes, at least 1
	// Local holds the bytes, from LocalOffset on. The bytes belong to the NIC until Results has
	// returned the transfer's result.
	Local       *nic.Region
	LocalOffset uint64
	// Key is the cipher of K_d, the key derived for this process (see nic.Derive). NextKey, if not
	// nil, replaces Key after the target has refused Key.
	Key, NextKey *nic.Cipher
	// Deadline ends the transfer. Operations in flight are not cut off, so the transfer may end
	// later than Deadline by the longest time of one operation. clock.Never means no deadline.
	Deadline clock.Time
	// Once is true if the first failure of an operation ends the transfer. Otherwise failed
	// operations are tried again until Deadline. A refused key always ends the transfer, unless
	// NextKey is left to try.
	Once bool
	// Tag is a number of the caller, by which it finds the result and names the transfer in Cancel.
	Tag uint64
}

// Result says how a transfer ended.
type Result struct {
	Tag    uint64
	Status nic.Status // nic.OK, the status of the last operation that failed, or nic.Timeout
	// Moved is the number of bytes whose operations have ended with status OK. Retries is how many
	// operations were issued again.
	Moved, Retries int
	Delay          time.Duration // from Start until the transfer ended
}

// chunk is a part of a transfer that one operation moves: at most 4096 bytes, from offset `at` of
// the transfer on.
type chunk struct{ at, length int }

// transfer is the state of a Transfer that has been started and has not ended.
type transfer struct {
	Transfer
	begun   clock.Time
	next    int     // offset of the first byte that was never issued
	again   []chunk // chunks of failed operations, to be issued again
	flying  int     // operations in flight
	moved   int     // bytes
	retries int
	status  nic.Status
	failed  bool // the executor issues no more operations for the transfer
	place   int  // index of the transfer in flow.queue
	// after is the transfer that follows this one in flow.turns. awaits is true while this transfer
	// is in that list.
	after  *transfer
	awaits bool
}

// more reports whether the transfer has bytes to issue: new ones, or those of failed operations.
func (t *transfer) more() bool { return !t.failed && (len(t.again) > 0 || t.next < t.Length) }

// take returns the chunk that the next operation moves: chunks of failed operations come first,
// then bytes that were never issued.
func (t *transfer) take() chunk {
	if k := len(t.again); k > 0 {
		c := t.again[k-1]
		t.again = t.again[:k-1]
		return c
	}
	c := chunk{t.next, min(onerma.MaxOp, t.Length-t.next)}
	t.next += c.length
	return c
}

// flow holds the transfers to one peer in one direction.
type flow struct {
	Window
	queue []*transfer // transfers in progress, in no particular order
	turns turns
}

// turns is the list of the transfers of a flow that have operations to issue. They take turns: the
// executor issues an operation of the first one, and moves that transfer to the end of the list.
type turns struct{ first, last *transfer }

// join puts a transfer at the end of the list, if it has operations to issue and is not in the
// list.
func (q *turns) join(t *transfer) {
	if t.awaits || !t.more() {
		return
	}
	if t.awaits, t.after = true, nil; q.first == nil {
		q.first = t
	} else {
		q.last.after = t
	}
	q.last = t
}

// leave removes a transfer from the list. Usually it is the first one, so the search for it is
// short.
func (q *turns) leave(t *transfer) {
	if !t.awaits {
		return
	}
	before := (*transfer)(nil)
	for x := q.first; x != t; x = x.after {
		before = x
	}
	if before == nil {
		q.first = t.after
	} else {
		before.after = t.after
	}
	if q.last == t {
		q.last = before
	}
	t.after, t.awaits = nil, false
}

// cut ends a transfer early: it issues no more operations. Its status is that of the last failed
// operation, or TIMEOUT if none has failed.
func (f *flow) cut(t *transfer) {
	t.failed = true
	f.turns.leave(t)
	if t.status == nic.OK {
		t.status = nic.Timeout
	}
}

type flowID struct {
	peer netip.Addr
	op   onerma.Op
}

// command is an operation in flight: which chunk of which transfer it moves, and with which key.
type command struct {
	t *transfer
	f *flow
	chunk
	key *nic.Cipher
}

// Executor executes the transfers of one process.
type Executor struct {
	cfg    Config
	portal *nic.Portal
	policy Policy
	local  Window
	flows  map[flowID]*flow
	order  []*flow // the flows, in the order of their first transfers
	turn   int     // index in order of the flow whose turn was last
	// commands holds the operations in flight, by tag. free holds the unused tags.
	commands []command
	free     []int
	done     []Result    // results that Results has not returned
	pool     []*transfer // ended transfers, for reuse
	deadline clock.Time  // what Deadline returns
	// earliest is a time before which no transfer's deadline comes: Tick looks for expired transfers
	// only when this time has come. When a transfer ends, earliest stays as it is.
	earliest clock.Time
	outcome  Outcome // scratch, for the policy
}

// maxFlows is the largest number of flows. There is a flow for each peer and direction.
const maxFlows = 4096

// New makes the executor of a portal. Only the executor may issue commands at the portal.
func New(cfg Config, portal *nic.Portal) (*Executor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Executor{cfg: cfg, portal: portal, policy: policies[cfg.Policy](cfg), local: Window{Size: cfg.First}, flows: make(map[flowID]*flow), deadline: clock.Never, earliest: clock.Never}
	e.begin(&e.local, true)
	e.commands = make([]command, portal.Free())
	for i := range e.commands {
		e.free = append(e.free, i)
	}
	return e, nil
}

// Start begins a transfer. The caller must then call Tick.
func (e *Executor) Start(now clock.Time, t Transfer) error {
	switch {
	case t.Op != onerma.Read && t.Op != onerma.Write:
		return opError(verbs.ErrInvalid, "%v: use READ or WRITE", t.Op)
	case t.Length < 1:
		return opError(verbs.ErrInvalid, "%d bytes: use at least 1", t.Length)
	case t.Key == nil || t.Local == nil:
		return opError(verbs.ErrInvalid, "pass a key and a local region")
	}
	id := flowID{t.Target, t.Op}
	f := e.flows[id]
	if f == nil {
		if len(e.flows) >= maxFlows {
			return opError(verbs.ErrLimit, "transfers to %d peers and directions are the limit", maxFlows)
		}
		f = &flow{Window: Window{Size: e.cfg.First}}
		e.begin(&f.Window, false)
		e.flows[id] = f
		e.order = append(e.order, f)
	}
	var x *transfer
	if k := len(e.pool); k > 0 {
		x = e.pool[k-1]
		e.pool = e.pool[:k-1]
	} else {
		x = new(transfer)
	}
	*x = transfer{Transfer: t, begun: now, again: x.again[:0], place: len(f.queue)}
	f.queue = append(f.queue, x)
	f.turns.join(x)
	e.earliest = clock.Min(e.earliest, t.Deadline)
	e.deadline = now
	return nil
}

func opError(err error, format string, args ...any) error {
	return &verbs.OpError{Op: "onerma transfer", Err: err, Detail: fmt.Sprintf(format, args...)}
}

// Renew sets the next key of the transfers in progress that do op on a region of a peer: an operation whose
// key is refused is tried again with it. See Transfer.NextKey. A next key that they have already becomes their
// key: the caller calls Renew only after the target has that one.
func (e *Executor) Renew(peer netip.Addr, region nic.RegionID, op onerma.Op, next *nic.Cipher) {
	f := e.flows[flowID{peer, op}]
	if f == nil {
		return
	}
	for _, t := range f.queue {
		if t.Remote == region {
			if t.NextKey != nil {
				t.Key = t.NextKey
			}
			t.NextKey = next
		}
	}
}

// Cancel ends the transfer with this tag: no more of its operations are issued. Results returns its
// result when none of its operations is in flight any more. After Cancel the caller must call Tick.
// If there is no such transfer, Cancel does nothing.
func (e *Executor) Cancel(now clock.Time, tag uint64) {
	for _, f := range e.order {
		for _, t := range f.queue {
			if t.Tag != tag || t.failed {
				continue
			}
			f.cut(t)
			e.settle(now, f, t)
			e.deadline = now
			return
		}
	}
}

// Results moves the results of ended transfers to out, and returns their number.
func (e *Executor) Results(out []Result) int {
	k := copy(out, e.done)
	e.done = e.done[:copy(e.done, e.done[k:])]
	return k
}

// Deadline returns when Tick must be called; clock.Never means that Tick is needed only when the
// NIC's Activity changes.
func (e *Executor) Deadline() clock.Time { return e.deadline }

// Tick handles completions, and issues the operations that windows, pace and slots allow. If the
// NIC refuses a command, Tick returns the NIC's error, and the transfer of this command ends with
// status nic.Timeout.
func (e *Executor) Tick(now clock.Time) error {
	var out [16]nic.Completion
	for {
		k := e.portal.Poll(out[:])
		for i := range out[:k] {
			e.completed(now, &out[i])
		}
		if k < len(out) {
			break
		}
	}
	if e.earliest <= now {
		e.expire(now)
	}
	e.deadline = e.earliest
	return e.issue(now)
}

// completed handles a completion: first it updates the windows, then the transfer.
func (e *Executor) completed(now clock.Time, c *nic.Completion) {
	i := int(c.Tag)
	x := e.commands[i]
	e.commands[i] = command{}
	e.free = append(e.free, i)
	e.local.flying--
	x.f.flying--
	e.adapt(now, x.f, c)
	t := x.t
	t.flying--
	switch {
	case c.Status == nic.OK:
		t.moved += x.length
	case c.Status == nic.RemoteAuthenticationFailure && (x.key != t.Key || t.NextKey != nil && x.key != t.NextKey):
		if x.key == t.Key { // otherwise the transfer has got a later key since the operation was issued
			t.Key = t.NextKey
		}
		t.again = append(t.again, x.chunk)
		t.retries++
	case t.Once || c.Status == nic.RemoteAuthenticationFailure:
		t.status = c.Status
		x.f.cut(t)
	default:
		t.again = append(t.again, x.chunk)
		t.status = c.Status
		t.retries++
	}
	x.f.turns.join(t)
	e.settle(now, x.f, t)
}

// adapt lets the policy update the local window and that of flow f after completion c.
func (e *Executor) adapt(now clock.Time, f *flow, c *nic.Completion) {
	e.outcome = Outcome{Now: now, Op: c.Op, Status: c.Status, Length: c.Length, IssueDelay: c.IssueDelay, TotalDelay: c.TotalDelay}
	e.policy.Ended(&e.outcome, &e.local, &f.Window)
	e.local.bound(&e.cfg)
	f.bound(&e.cfg)
}

// settle ends transfer t if t has no operation in flight and none left to issue.
func (e *Executor) settle(now clock.Time, f *flow, t *transfer) {
	if t.flying > 0 || t.more() {
		return
	}
	if t.moved == t.Length {
		t.status = nic.OK
	}
	e.done = append(e.done, Result{Tag: t.Tag, Status: t.status, Moved: t.moved, Retries: t.retries, Delay: now.Sub(t.begun)})
	last := len(f.queue) - 1
	f.queue[t.place], f.queue[last].place = f.queue[last], t.place
	f.queue = f.queue[:last]
	e.pool = append(e.pool, t)
}

// expire makes the transfers whose deadline has passed issue nothing more. They end when their
// operations in flight have ended.
func (e *Executor) expire(now clock.Time) {
	e.earliest = clock.Never
	for _, f := range e.order {
		for i := len(f.queue) - 1; i >= 0; i-- {
			t := f.queue[i]
			if t.failed {
				continue
			}
			if t.Deadline > now {
				e.earliest = clock.Min(e.earliest, t.Deadline)
				continue
			}
			f.cut(t)
			e.settle(now, f, t)
		}
	}
}

// issue issues operations of all flows in turn, as long as windows, pace and slots allow. It
// returns the first error, but goes on with the remaining flows.
func (e *Executor) issue(now clock.Time) (first error) {
	for idle := 0; idle < len(e.order) && len(e.free) > 0; {
		e.turn = (e.turn + 1) % len(e.order)
		ok, err := e.one(now, e.order[e.turn])
		first = cmp.Or(first, err)
		if idle++; ok {
			idle = 0
		}
	}
	return first
}

// one issues one operation of flow f. It returns false if f has no operation to issue, or if the
// window of f or the local window has no room or allows the next operation only later (its pace).
func (e *Executor) one(now clock.Time, f *flow) (bool, error) {
	t := f.turns.first
	if t == nil || !f.room() || !e.local.room() {
		return false, nil
	}
	if at := max(f.next, e.local.next); at > now {
		e.deadline = clock.Min(e.deadline, at)
		return false, nil
	}
	f.turns.leave(t)
	i := e.free[len(e.free)-1]
	c := t.take()
	cmd := nic.Command{
		Op: t.Op, Class: t.Class, Length: c.length, Target: t.Target, Remote: t.Remote, Offset: t.Offset + uint64(c.at), Key: t.Key,
		Local: t.Local, LocalOffset: t.LocalOffset + uint64(c.at), Tag: uint64(i),
	}
	if err := e.portal.Issue(now, &cmd); err != nil {
		t.failed, t.status = true, nic.Timeout
		e.settle(now, f, t)
		return true, err
	}
	f.turns.join(t)
	e.free = e.free[:len(e.free)-1]
	e.commands[i] = command{t, f, c, t.Key}
	t.flying++
	e.local.issued(now, &e.cfg, e.local.Size)
	f.issued(now, &e.cfg, min(f.Size, e.local.Size))
	return true, nil
}
