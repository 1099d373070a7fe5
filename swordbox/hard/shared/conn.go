package shared

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// Link is an established connection. From Attach on its PSNs belong to the Conn.
type Link struct {
	// To is how requests reach the server and its queue pair.
	To rewrite.Path
	// OwnQPN is where answers come.
	OwnQPN wire.QPN
	// SendPSN is that of the first request, RecvPSN the first that the server uses for requests of its own.
	SendPSN, RecvPSN wire.PSN
	// MTU is the path MTU in bytes.
	MTU int
	// Depth is how many READs and atomics the server takes at a time; at least 1.
	Depth int
}

// Peer is the server's address.
func (l *Link) Peer() netip.Addr {
	if l.To.V6 {
		return netip.AddrFrom16(l.To.IPv6.Dst)
	}
	return netip.AddrFrom4(l.To.IPv4.Dst)
}

// Own is the switch's address.
func (l *Link) Own() netip.Addr {
	if l.To.V6 {
		return netip.AddrFrom16(l.To.IPv6.Src)
	}
	return netip.AddrFrom4(l.To.IPv4.Src)
}

// Number is that of the configuration.
func (c *Conn) Number() uint32 { return c.cfg.Number }

// Config bounds a Conn. The zero value of each field is its default.
type Config struct {
	// Number names the connection in captures.
	Number uint32
	// Ring is how many requests may be on the wire, Waiting how many more may wait. 0: 128 and 1024.
	Ring, Waiting int
	// RTO is the first retransmission time-out, which doubles twice; 0: 1 ms. Silence is after how long without an answer
	// the server is given up; 0: 255 ms.
	RTO, Silence time.Duration
	// Naks is how many NAKs without progress end the connection; 0: 64.
	Naks int
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v *int
		n int
	}{{&c.Ring, 128}, {&c.Waiting, 1024}, {&c.Naks, 64}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
	if c.RTO <= 0 {
		c.RTO = time.Millisecond
	}
	if c.Silence <= 0 {
		c.Silence = 255 * time.Millisecond
	}
	return c
}

// Tag is what the user wants to be told with the answer of a request.
type Tag struct {
	// Lane and Generation name whose request it is, PSN is its number there.
	Lane, Generation uint32
	PSN              wire.PSN
}

// Kind is how a request ended.
type Kind uint8

// Kinds of answers.
const (
	// Acked: executed.
	Acked Kind = iota
	// Atomic: executed; Prior is the value before.
	Atomic
	// Read: executed; Frame is the response.
	Read
	// Refused: not executed; Syndrome is why. Nothing behind it has been executed either.
	Refused
	// Lost: whether it was executed is not known.
	Lost
	// Returned: not executed, and it will not be: the connection has ended before its turn.
	Returned
)

// Answer is the end of a request.
type Answer struct {
	Kind     Kind
	Prior    uint64
	Syndrome wire.Syndrome
	// Op and PSN are those of the answer, of which several may share one; Op is 0 if there was none.
	Op  wire.Opcode
	PSN wire.PSN
	// Frame is the READ response as it came; valid during the call.
	Frame *wire.Frame
}

// User is who submits requests. It may call Submit from within Done, and nothing else.
type User interface {
	// Done ends a request.
	Done(ctx *pipeline.Ctx, t Tag, a Answer)
	// Retry says that a request which the server refused shall be Returned, not Refused.
	Retry(t Tag) bool
	// Failed says that the connection is no more. A new one may be attached at any time after the call.
	Failed(ctx *pipeline.Ctx, why string)
	// Describe fills what a note in a capture says about a request besides the PSN on the shared connection.
	Describe(t Tag, n *rewrite.Note)
}

// State is what a Conn can do.
type State uint8

// States.
const (
	// Idle: no connection was attached yet.
	Idle State = iota
	// Up: requests are sent.
	Up
	// Down: the connection has failed.
	Down
)

var stateNames = [...]string{"idle", "up", "down"}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// entry is a request and its copy.
type entry struct {
	bth     wire.BTH
	reth    wire.RETH
	atomic  wire.AtomicETH
	class   uint8 // DSCP and ECN
	sent    bool  // at least once on the present connection
	payload []byte
	tag     Tag
	since   clock.Time
}

// answered reports that the request has an answer of its own, which no acknowledgement stands for (IBTA 9.7.5.1.1).
func (e *entry) answered() bool { return e.bth.Opcode.Is(wire.OpRead | wire.OpAtomic) }

// Conn is the requester. Positions count requests and wrap around at 2^32:
//
//	una           oldest that is not answered, with PSN unaPSN
//	  ≤ next      next to be sent
//	    ≤ high    one past what was ever sent on this connection: [una, high) may be answered
//	      ≤ tail  one past the newest
type Conn struct {
	cfg   Config
	user  User
	link  Link
	state State

	ring                  []entry
	una, next, high, tail uint32
	unaPSN                wire.PSN
	answer                wire.BTH // of the response at hand
	reads                 int      // READs and atomics in [una, next)

	rtoAt, rnrAt clock.Time
	tries, naks  int
	silent       time.Duration // that the server has not answered for, as of the last time-out
	window       int           // how many may be on the wire: Config.Ring, or 1 as long as a silent server is asked
	implied      bool          // a replay for an implied loss is under way
	// refused says that the server has refused the request at guilty for good, with syndrome.
	refused  bool
	guilty   uint32
	syndrome wire.Syndrome
	busy     bool // within a call that pumps at its end

	recvPSN wire.PSN
	recvMSN uint32
	recvNak bool

	tx    wire.Frame // scratch
	stats Stats
}

// New makes a Conn without connection.
func New(cfg Config, user User) *Conn {
	cfg = cfg.withDefaults()
	n := 1
	for n < cfg.Ring+cfg.Waiting {
		n *= 2
	}
	return &Conn{cfg: cfg, user: user, ring: make([]entry, n), rtoAt: clock.Never, rnrAt: clock.Never}
}

func (c *Conn) at(pos uint32) *entry { return &c.ring[pos&uint32(len(c.ring)-1)] }

// State returns the state.
func (c *Conn) State() State { return c.state }

// Link returns the connection; it is meaningful while Up.
func (c *Conn) Link() *Link { return &c.link }

// Stats returns a copy of the counters.
func (c *Conn) Stats() Stats { return c.stats }

// Outstanding is how many requests are on the wire, Queued how many wait for their first transmission.
func (c *Conn) Outstanding() int { return int(c.high - c.una) }

// Queued is how many requests wait for their first transmission.
func (c *Conn) Queued() int { return int(c.tail - c.high) }

// NextPSN is that of the next request to be sent for the first time.
func (c *Conn) NextPSN() wire.PSN { return c.unaPSN.Add(int(c.high - c.una)) }

// Tries is how often in a row the server did not answer in time.
func (c *Conn) Tries() int { return c.tries }

// Room reports whether Submit will take a request of n payload bytes.
func (c *Conn) Room(n int) bool {
	return c.state == Up && n <= c.link.MTU && int(c.tail-c.una) < c.cfg.Ring+c.cfg.Waiting
}

// Each calls fn for each unanswered request, oldest first: its tag, its PSN on the connection, the opcode that is sent, and
// when it was submitted.
func (c *Conn) Each(fn func(t Tag, psn wire.PSN, op wire.Opcode, since clock.Time)) {
	for pos := c.una; pos != c.tail; pos++ {
		e := c.at(pos)
		fn(e.tag, c.unaPSN.Add(int(pos-c.una)), e.bth.Opcode, e.since)
	}
}

// Attach brings a connection in place of none, or of one that has failed.
func (c *Conn) Attach(l Link) {
	l.Depth = max(1, l.Depth)
	c.link, c.state = l, Up
	c.unaPSN, c.recvPSN, c.recvMSN, c.recvNak = l.SendPSN, l.RecvPSN, 0, false
	c.next, c.high, c.reads = c.una, c.una, 0
	c.naks, c.implied, c.refused = 0, false, false
	c.heard()
	c.rtoAt, c.rnrAt = clock.Never, clock.Never
}

// Detach says that the connection is no more, for a reason that came from elsewhere. All requests are Lost.
func (c *Conn) Detach(ctx *pipeline.Ctx) {
	if c.state == Up {
		c.fail(ctx, Lost, "")
	}
}

// Submit queues a request and sends it if it may. f is the request as the server shall see it, but for path, PSN and
// AckReq. f and its payload are copied. False says that there is no room: see Room.
func (c *Conn) Submit(ctx *pipeline.Ctx, f *wire.Frame, t Tag) bool {
	if !c.take(ctx, f, t) {
		return false
	}
	if !c.busy {
		c.pump(ctx)
	}
	return true
}

// SubmitInPlace is Submit, but a request that may be sent at once is not: f becomes the packet, for the caller to send.
// now says so; note explains it in captures.
func (c *Conn) SubmitInPlace(ctx *pipeline.Ctx, f *wire.Frame, t Tag) (ok, now bool, note string) {
	if !c.take(ctx, f, t) {
		return false, false, ""
	}
	if c.busy || c.next != c.tail-1 || !c.maySend() {
		if !c.busy {
			c.pump(ctx)
		}
		return true, false, ""
	}
	e := c.at(c.next)
	psn := c.passed(e)
	c.arm(ctx.Now)
	note = c.note(ctx, e, psn)
	c.count(e)
	rewrite.Request(f, &c.link.To, psn)
	return true, true, note
}

// take makes an entry of a request.
func (c *Conn) take(ctx *pipeline.Ctx, f *wire.Frame, t Tag) bool {
	if !c.Room(len(f.Payload)) {
		c.stats.NoRoom++
		return false
	}
	c.stats.Submitted++
	e := c.at(c.tail)
	c.tail++
	e.tag, e.since, e.sent = t, ctx.Now, false
	c.store(e, f)
	return true
}

// store makes f the copy of a request.
func (c *Conn) store(e *entry, f *wire.Frame) {
	e.bth, e.reth, e.atomic = f.BTH, f.RETH, f.AtomicETH
	if e.class = f.IPv4.TOS; f.V6 {
		e.class = f.IPv6.TrafficClass
	}
	e.payload = append(e.payload[:0], f.Payload...)
}

// load makes the scratch frame a request as it was submitted.
func (c *Conn) load(e *entry) {
	c.tx = wire.Frame{V6: c.link.To.V6}
	c.tx.IPv4.TOS, c.tx.IPv6.TrafficClass = e.class, e.class
	c.tx.BTH, c.tx.RETH, c.tx.AtomicETH, c.tx.Payload = e.bth, e.reth, e.atomic, e.payload
}

// Oldest is when the oldest unanswered request was submitted; false: there is none.
func (c *Conn) Oldest() (clock.Time, bool) {
	if c.una == c.tail {
		return 0, false
	}
	return c.at(c.una).since, true
}

// Newest is the position behind the newest request, for HasEnded.
func (c *Conn) Newest() uint32 { return c.tail }

// HasEnded reports whether all requests before a position have ended, not more than 2^31 requests ago.
func (c *Conn) HasEnded(pos uint32) bool { return int32(c.una-pos) >= 0 }

// Bounds are Ring and Waiting with their defaults.
func (c Config) Bounds() (ring, waiting int) {
	c = c.withDefaults()
	return c.Ring, c.Waiting
}

// Ring is how many requests may be on the wire.
func (c *Conn) Ring() int { return c.cfg.Ring }
