package kvcs

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Remote is a replica as a client's Port sees it.
type Remote struct {
	Addr   netip.Addr
	Region nic.RegionID
	Length uint64      // length of the region in bytes
	Key    *nic.Cipher // cipher with K_d, the key for this client's READs
	id     Replica     // the replica as the view names it
}

// Port is a client's interface to its host: a clock, datagrams to and from the coordinator, and
// READs. One thread uses it.
type Port interface {
	Now() clock.Time
	// Closed reports whether the port was closed. From then on Receive and Read fail at once, and
	// operations of the client end with kv.ErrClosed.
	Closed() bool
	// Send sends a datagram to the coordinator. Receive waits for a datagram from the coordinator,
	// up to the time `until`. It returns false if none has arrived by then. The bytes are valid
	// until the next call of Receive.
	Send(b []byte)
	Receive(until clock.Time) ([]byte, bool)
	// Read reads len(b) bytes of a replica's memory, by one or several operations of the NIC. It
	// returns the status of the first operation that fails, or nic.Timeout if an operation could
	// not be issued before the time `until`.
	Read(r *Remote, offset uint64, b []byte, until clock.Time) nic.Status
}

// ClientConfig describes a client.
type ClientConfig struct {
	Port Port // required
	// PID is the PID of the process whose NIC executes the READs; required.
	PID nic.PID
	// RTT is the round-trip time of the rack; required.
	RTT time.Duration
	// Number chooses the replica that the client prefers.
	Number uint64
	// Health is shared by the clients of a host; nil means that the client has its own.
	Health *Health
}

// Client is a client of the store. One thread uses it.
type Client struct {
	cfg     ClientConfig
	port    Port
	session uint64
	store   uint64 // number of the store; 0 before the client has a view
	ended   bool   // true if the coordinator has begun another store
	view    view
	remotes []*Remote
	// lease is the time until which the client may use the view. renewal is when the client asks
	// for the next view.
	lease, renewal clock.Time
	// asked is when the client last asked for a view; the message has this time as its number.
	// opening is when the client began to ask for its present session.
	asked, opening clock.Time
	number         uint64 // number of the last change
	result         outcome
	window         [windowLen]byte // the window that was READ last
	cell           []byte          // the cell that was READ last
	status         nic.Status      // status of the last READ that has failed
	cost           kv.Cost
	stats          ClientStats
}

// outcome is the outcome of the last change. known is false until it has arrived.
type outcome struct {
	known bool
	err   error
}

// ClientStats counts what a client has done.
type ClientStats struct {
	// Redirected is how often a READ failed, after which the client prefers other replicas. Changed
	// is how often a replica's memory had changed while it was read. Pending is how often a key had
	// a change in progress.
	Redirected, Changed, Pending uint64
}

func Open(cfg ClientConfig, deadline clock.Time) (*Client, error) {
	if cfg.Port == nil || cfg.RTT <= 0 {
		return nil, errors.New("kvcs client: give Port and RTT")
	}
	if cfg.Health == nil {
		cfg.Health = new(Health)
	}
	c := &Client{cfg: cfg, port: cfg.Port, opening: cfg.Port.Now()}
	if err := c.renew(deadline); err != nil {
		return nil, err
	}
	return c, nil
}

// ErrEnded is joined with kv.ErrLost: the coordinator was started again, with an empty table. A
// client that is opened now uses the new table.
var ErrEnded = errors.New("the coordinator has begun again with an empty table")

var errSilent = errors.New("the coordinator does not answer")

// errAlone is the reason in the timeout of a GET that knows no replica at its deadline.
var errAlone = errors.New("no server has a replica that clients may read; `rdmalab kvcs stat` lists those that have one, `rdmalab kvcs start` starts replicas")

func (c *Client) Stats() ClientStats { return c.stats }

// Store returns the number of the store: each start of a coordinator begins another one.
func (c *Client) Store() uint64 { return c.store }

// MaxValue returns the length of the longest value, in bytes.
func (c *Client) MaxValue() int { return c.view.shape.Value }

func (c *Client) Last() kv.Cost { return c.cost }

// Close implements kv.Store. It does nothing, because the coordinator forgets a client that is
// silent.
func (c *Client) Close() error { return nil }

// patience is how long the client waits for an answer before it asks again.
func (c *Client) patience() time.Duration { return 4 * c.cfg.RTT }

// ask sends the coordinator a request for a new lease or, if the client has no session, for a
// session and a lease.
func (c *Client) ask() {
	c.asked = c.port.Now()
	m := message{kind: msgRenew, id: c.session, number: uint64(c.asked)}
	if c.session == 0 {
		m.kind, m.region = msgHello, uint32(c.cfg.PID)
	}
	c.port.Send(m.encode())
	c.renewal = c.asked.Add(c.patience())
}

// renew waits until the client has a lease for a view. An error says that the operation for which
// the lease is needed has had no effect. A client whose session was forgotten begins another one.
func (c *Client) renew(deadline clock.Time) error {
	for {
		now := c.port.Now()
		switch {
		case c.port.Closed():
			return kv.ErrClosed
		case c.ended:
			return errors.Join(kv.ErrLost, ErrEnded, kv.ErrNoEffect)
		case now < c.lease && c.session != 0:
			return nil
		case now >= deadline:
			return errors.Join(kv.TimedOut(errSilent), kv.ErrNoEffect)
		case now >= c.renewal:
			c.ask()
		}
		c.wait(clock.Min(c.renewal, deadline))
	}
}

// wait waits for one message, at most up to the time `until`, and handles it.
func (c *Client) wait(until clock.Time) {
	if b, ok := c.port.Receive(until); ok {
		c.handle(b)
	}
}

// pause waits until the time `until`, and handles all messages that arrive before.
func (c *Client) pause(until clock.Time) {
	for {
		b, ok := c.port.Receive(until)
		if !ok {
			return
		}
		c.handle(b)
	}
}

func (c *Client) handle(b []byte) {
	var m message
	if !m.parse(b) {
		return
	}
	switch m.kind {
	case msgView:
		c.viewed(&m)
	case msgForgotten:
		if m.id == c.session {
			c.session, c.lease, c.renewal, c.opening = 0, 0, 0, c.port.Now()
		}
	case msgOutcome:
		if m.id == c.session && m.number == c.number && int(m.op) < len(results) {
			c.result = outcome{true, results[m.op]}
		}
	default:
	}
}

// viewed handles a view that the coordinator has sent in message m. The client's lease counts from
// the time at which the client asked for the view.
func (c *Client) viewed(m *message) {
	var v view
	at := clock.Time(m.number) // when the client has asked
	if c.session != 0 && m.id != c.session || at < c.opening || at > c.asked || !v.parse(m.body) {
		return
	}
	if c.store != 0 && c.store != m.store {
		c.ended = true
		return
	}
	if v.epoch < c.view.epoch {
		return
	}
	c.store = m.store
	if c.session == 0 {
		c.session, c.number = m.id, 0
	}
	if v.epoch != c.view.epoch {
		c.remotes = c.adopt(&v)
	}
	c.view = v
	c.lease = max(c.lease, at.Add(v.lease))
	c.renewal = at.Add(v.lease / 2)
}

// adopt returns the replicas of a view in the order in which the client prefers them.
func (c *Client) adopt(v *view) (out []*Remote) {
	for _, r := range v.replicas {
		x := &Remote{Addr: r.Addr, Region: r.Region, Length: uint64(v.shape.Bytes()), Key: nic.NewCipher(r.Key), id: r}
		for _, old := range c.remotes {
			if old.id == r {
				x = old
			}
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b *Remote) int { return cmp.Compare(c.rank(b.Addr), c.rank(a.Addr)) })
	return out
}

// rank returns how much the client prefers the replica on a server: the client asks replicas of
// higher rank first.
func (c *Client) rank(a netip.Addr) uint64 {
	b := a.As4()
	return mix(c.cfg.Number ^ mix(uint64(b[0])<<24|uint64(b[1])<<16|uint64(b[2])<<8|uint64(b[3])))
}

// change sends a change to the coordinator, again and again, until the coordinator answers or the
// deadline has passed.
func (c *Client) change(o op, key uint64, value []byte, deadline clock.Time) error {
	c.cost = kv.Cost{}
	if len(value) > MaxValue {
		return kv.ErrTooLarge
	}
	if err := c.renew(deadline); err != nil {
		return err
	}
	session := c.session
	c.number++
	c.result = outcome{}
	m := message{kind: msgChange, id: session, number: c.number, op: uint8(o), key: key, body: value}
	b := m.encode()
	for next := clock.Time(0); ; {
		switch now := c.port.Now(); {
		case c.result.known:
			return c.result.err
		case c.port.Closed():
			return kv.ErrClosed
		case c.session != session:
			return kv.TimedOut(errors.New("the coordinator has forgotten the client"))
		case now >= deadline:
			return kv.TimedOut(errSilent)
		case now >= next:
			c.port.Send(b)
			c.cost.RPCs++
			next = now.Add(c.patience())
		}
		if c.port.Now() >= c.renewal {
			c.ask()
		}
		c.wait(clock.Min(clock.Min(next, deadline), c.renewal))
	}
}

func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.change(opPut, key, value, deadline)
}

func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.change(opInsert, key, value, deadline)
}

func (c *Client) Upsert(key uint64, value []byte, deadline clock.Time) error {
	return c.change(opUpsert, key, value, deadline)
}

func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.change(opDelete, key, nil, deadline)
}

// finding is the result of a lookup in one replica.
type finding uint8

const (
	found finding = iota
	absent
	isPending
	isChanged
	failed
)

// mostTries is how often the client looks up a key in a replica that it can READ before it asks
// another replica: a server that hangs may have left the key pending.
const mostTries = 8

func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	c.cost = kv.Cost{}
	why := errAlone
	for tries := 0; ; {
		if err := c.renew(deadline); err != nil {
			return nil, err
		}
		now := c.port.Now()
		switch {
		case now >= deadline:
			return nil, kv.TimedOut(why)
		case now >= c.renewal:
			c.ask()
		}
		c.pause(now)
		r := c.cfg.Health.choose(c.port.Now(), c.remotes, tries/mostTries)
		if r == nil { // there is no replica, but a server may become one soon
			why = errAlone
			c.renewal = clock.Min(c.renewal, c.asked.Add(c.patience()))
			c.wait(clock.Min(deadline, now.Add(c.patience())))
			continue
		}
		value, x := c.lookup(r, key)
		why = c.why(r, x)
		switch after := c.port.Now(); {
		case x == failed && after == now: // failed at once, because the client's NIC is down
			c.pause(clock.Min(deadline, now.Add(c.cfg.RTT)))
			continue
		case x == failed || after >= c.lease: // without a lease, the replica may have been fenced and lack changes
			continue
		}
		switch x {
		case found:
			return append(dst[:0], value...), nil
		case absent:
			return nil, kv.ErrNotFound
		case isPending:
			c.stats.Pending++
		default:
			c.stats.Changed++
		}
		tries++
		c.cost.Retries++
		c.pause(clock.Min(deadline, c.port.Now().Add(c.cfg.RTT*time.Duration(min(tries, mostTries))/4)))
	}
}

// why returns the reason for which a GET must try again after a lookup in replica r has returned x.
func (c *Client) why(r *Remote, x finding) error {
	switch x {
	case failed:
		return fmt.Errorf("a READ of the replica on %v ends with %v", r.Addr, c.status)
	case isPending:
		return fmt.Errorf("a change of the key is in progress on %v", r.Addr)
	case isChanged:
		return fmt.Errorf("the memory of the replica on %v changes during each READ", r.Addr)
	default:
		return errSilent // the lease has ended meanwhile
	}
}

func (c *Client) lookup(r *Remote, key uint64) ([]byte, finding) {
	if !c.read(r, uint64(c.view.shape.window(key))*slotLen, c.window[:]) {
		return nil, failed
	}
	var best, s slot
	for at := 0; at < windowLen; at += slotLen {
		if !s.parse(c.window[at:]) {
			return nil, isChanged
		}
		if s.state != free && s.key == key && s.version >= best.version {
			best = s
		}
	}
	switch {
	case best.state == free:
		return nil, absent
	case best.state == pending:
		return nil, isPending
	case int(best.length) > c.view.shape.Value || int(best.cell) >= c.view.shape.Cells:
		return nil, isChanged
	}
	n := cellHead + int(best.length)
	if cap(c.cell) < n {
		c.cell = make([]byte, cellHead+c.view.shape.Value)
	}
	if !c.read(r, uint64(c.view.shape.cellAt(best.cell)), c.cell[:n]) {
		return nil, failed
	}
	v, ok := valueOf(c.cell[:n], &best)
	if !ok {
		return nil, isChanged
	}
	return v, found
}

// read reads memory of a replica. It returns false if that fails. Then the clients of the host
// prefer other replicas for a while (see Health).
func (c *Client) read(r *Remote, offset uint64, b []byte) bool {
	c.cost.RTTs++
	began := c.port.Now()
	s := c.port.Read(r, offset, b, began.Add(8*c.cfg.RTT))
	if s == nic.OK {
		c.cfg.Health.well(r)
		return true
	}
	c.stats.Redirected++
	c.status = s
	c.cfg.Health.failed(c.port.Now(), began, r, s, c.cfg.RTT)
	if s == nic.RemoteAuthenticationFailure {
		c.renewal = cmp.Or(clock.Min(c.renewal, c.asked.Add(c.patience())), 1) // the view may have changed: the client asks for it soon
	}
	return false
}
