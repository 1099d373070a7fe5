package requester

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Link describes an established connection of the switch. From Attach on, only the Conn uses its
// PSNs.
type Link struct {
	// To is the path to the server and its queue pair.
	To transform.Path
	// OwnQPN is the switch's queue pair, to which the server sends its answers.
	OwnQPN wire.QPN
	// SendPSN is the PSN of the first request of the switch. RecvPSN is the PSN of the first
	// request of the server.
	SendPSN, RecvPSN wire.PSN
	// MTU is the path MTU in bytes.
	MTU int
	// Depth is how many READs and atomics the server accepts in flight; at least 1.
	Depth int
}

// LinkOf returns the Link of a connection that the switch has made.
func LinkOf(s *switchconn.Shared) Link {
	to := transform.PathOf(&s.To)
	to.DestQP = s.ServerQPN
	return Link{To: to, OwnQPN: s.OwnQPN, SendPSN: s.SendPSN, RecvPSN: s.RecvPSN, MTU: s.MTU, Depth: s.Depth}
}

// Peer returns the server's address.
func (l *Link) Peer() netip.Addr {
	if l.To.V6 {
		return netip.AddrFrom16(l.To.IPv6.Dst)
	}
	return netip.AddrFrom4(l.To.IPv4.Dst)
}

// Own returns the switch's address.
func (l *Link) Own() netip.Addr {
	if l.To.V6 {
		return netip.AddrFrom16(l.To.IPv6.Src)
	}
	return netip.AddrFrom4(l.To.IPv4.Src)
}

func (c *Conn) Number() uint32 { return c.Requests.cfg.Number }

// Config bounds a Conn. A field that is 0 stands for its default.
type Config struct {
	// Number names the connection in captures.
	Number uint32
	// Ring is how many requests may be in flight. Waiting is how many more may wait for their first
	// transmission. 0 means 128 and 1024.
	Ring, Waiting int
	// RTO is the first retransmission timeout; after each of the first two timeouts in succession
	// it doubles. 0 means 1 ms. Silence is how long the server may send no answer while a request
	// is in flight; then the connection fails. 0 means 255 ms.
	RTO, Silence time.Duration
	// Naks is how often in succession the Conn retransmits because an answer shows a loss. When a
	// further such answer comes before the server has executed another request, the connection
	// fails. 0 means 64.
	Naks int
}

func (c Config) withDefaults() Config {
	c.Ring = cmp.Or(max(0, c.Ring), 128)
	c.Waiting = cmp.Or(max(0, c.Waiting), 1024)
	c.Naks = cmp.Or(max(0, c.Naks), 64)
	c.RTO = cmp.Or(max(0, c.RTO), time.Millisecond)
	c.Silence = cmp.Or(max(0, c.Silence), 255*time.Millisecond)
	return c
}

// Tag identifies a request to the User.
type Tag struct {
	// Flow and Generation identify the flow of the request. PSN is the PSN that the client gave the
	// request.
	Flow, Generation uint32
	PSN              wire.PSN
}

// Kind says how a request ended.
type Kind uint8

const (
	// Acked: the request was executed.
	Acked Kind = iota
	// Atomic: the atomic was executed; Prior is the original value of the word.
	Atomic
	// Read: the READ was executed; Frame is the response.
	Read
	// Refused: the server refused the request with Syndrome. Neither it nor any later request was
	// executed.
	Refused
	// Lost: the request may or may not have been executed.
	Lost
	// Returned: the request was not executed and will not be. The server refused it and User.Retry
	// returned true, or the server refused an earlier request.
	Returned
)

// Answer says how a request ended.
type Answer struct {
	Kind     Kind
	Prior    uint64
	Syndrome wire.Syndrome
	// Op and PSN are the opcode and PSN of the server's packet that ended the request. One packet
	// may end several requests. Op is 0 if no packet ended it.
	Op  wire.Opcode
	PSN wire.PSN
	// Frame is the READ response as received. It is valid only during the call.
	Frame *wire.Frame
}

// User submits requests. Within Done, Submit is the only method by which it may change the Conn.
type User interface {
	// Done is called once for each request, when it has ended.
	Done(ctx *pipeline.Ctx, t Tag, a Answer)
	// Retry is called when the server has refused a request. If it returns true, the request ends
	// as Returned instead of Refused, because its client will send it again in another form.
	Retry(t Tag) bool
	// Failed is called when the connection has failed. A new one may be attached at any time after
	// the call.
	Failed(ctx *pipeline.Ctx, why string)
	// Describe adds to a note for captures what only the user knows about a request: the client and
	// the original operation.
	Describe(t Tag, n *transform.Note)
}

type State uint8

const (
	// Idle: no connection has been attached yet.
	Idle State = iota
	// Up: the Conn sends requests.
	Up
	// Down: the connection has failed, or was ended by Detach.
	Down
)

var stateNames = [...]string{"idle", "up", "down"}

func (s State) String() string { return stateNames[s] }

// entry holds a copy of a request.
type entry struct {
	bth     wire.BTH
	reth    wire.RETH
	atomic  wire.AtomicETH
	class   uint8 // DSCP and ECN
	sent    bool  // true if the request was sent at least once on this connection
	once    bool  // submitted by SubmitOnce: a retransmission is a WRITE of no bytes
	payload []byte
	tag     Tag
	since   clock.Time // when the request was submitted
}

// answered reports whether the server answers the request with a READ response or an atomic
// acknowledgement. A later acknowledgement cannot replace such a response (IBTA 9.7.5.1.1).
func (e *entry) answered() bool { return e.bth.Opcode.Is(wire.OpRead | wire.OpAtomic) }

// Conn is the requester on one connection. Positions count requests and wrap around at 2^32:
//
//	una           oldest unanswered request, with PSN unaPSN
//	  ≤ next      request to be sent next
//	    ≤ high    one past the newest request sent on this connection: [una, high) may be answered
//	      ≤ tail  one past the newest request
type Conn struct {
	Requests requests // in the order of their PSNs
	recovery
	reverse
	pace   pace
	user   User
	answer wire.BTH // the BTH of the response that Packet is handling
	busy   bool     // Packet is running; it calls pump at its end

	tx    wire.Frame // scratch
	stats Stats
}

// requests holds the requests of a connection in the order of their PSNs. The requests at positions
// [una, high) are in flight, and those at [high, tail) wait for their first transmission. The Conn
// sends the request at position next first; next is before high while requests are retransmitted.
type requests struct {
	cfg                   Config
	link                  Link
	state                 State
	ring                  []entry
	una, next, high, tail uint32
	unaPSN                wire.PSN
	reads                 int // READs and atomics in [una, next)
}

// recovery is the state for handling losses, a server that does not answer, and a request that the
// server has refused.
type recovery struct {
	// rtoAt is when the ACK timer expires, rnrAt when the wait after an RNR NAK ends; clock.Never
	// means that there is no timer or wait. tries is the number of timeouts since the server last
	// answered. naks counts calls of replay since the server last executed a request or sent an RNR
	// NAK.
	rtoAt, rnrAt clock.Time
	tries, naks  int
	silent       time.Duration // sum of the timeouts since the server last answered
	// window is how many requests may be in flight: Config.Ring, or 1 while the server does not
	// answer.
	window int
	// implied is true if requests were sent again because an answer skipped a READ or an atomic,
	// and neither an answer to a further request nor a timeout has followed.
	implied bool
	// refused is true if the server has refused the request at position guilty by a fatal NAK.
	// syndrome is the syndrome of the NAK.
	refused  bool
	guilty   uint32
	syndrome wire.Syndrome
}

// reverse is the switch's responder for requests that the server sends on the same connection.
type reverse struct {
	recvPSN wire.PSN // the expected PSN
	recvMSN uint32   // how many messages were received
	recvNak bool     // true if a sequence NAK was sent for the present gap
}

// New makes a Conn without a connection.
func New(cfg Config, user User) *Conn {
	cfg = cfg.withDefaults()
	c := &Conn{user: user}
	c.Requests.cfg, c.Requests.ring = cfg, make([]entry, firstRing)
	c.rtoAt, c.rnrAt, c.pace.until = clock.Never, clock.Never, clock.Never
	return c
}

// firstRing is the length of a new ring, a power of two.
const firstRing = 32

// grow doubles the ring if it is full. This happens a few times, until the ring has room for
// Config.Ring and Config.Waiting together.
func (c *requests) grow() {
	if int(c.tail-c.una) < len(c.ring) {
		return
	}
	old := c.ring
	c.ring = make([]entry, 2*len(old))
	for pos := c.una; pos != c.tail; pos++ {
		*c.at(pos) = old[pos&uint32(len(old)-1)]
	}
}

func (c *requests) at(pos uint32) *entry { return &c.ring[pos&uint32(len(c.ring)-1)] }

func (c *Conn) State() State { return c.Requests.state }

// Link returns the connection. The result is meaningful in state Up.
func (c *Conn) Link() *Link { return &c.Requests.link }

// Stats returns a copy of the counters. They count all connections so far.
func (c *Conn) Stats() Stats { return c.stats }

// Outstanding returns how many requests are in flight.
func (c *requests) Outstanding() int { return int(c.high - c.una) }

// Queued returns how many requests wait for their first transmission.
func (c *requests) Queued() int { return int(c.tail - c.high) }

// NextPSN returns the PSN of the next request that is sent for the first time.
func (c *requests) NextPSN() wire.PSN { return c.unaPSN.Add(int(c.high - c.una)) }

// Tries returns the number of timeouts since the last answer of the server.
func (c *Conn) Tries() int { return c.tries }

// Room reports whether Submit would accept a request with n bytes of payload.
func (c *requests) Room(n int) bool {
	return c.state == Up && n <= c.link.MTU && int(c.tail-c.una) < c.cfg.Ring+c.cfg.Waiting
}

// Each calls fn for each unanswered request, the oldest first. psn is the request's PSN on the
// connection, op the opcode that is sent. since is when the request was submitted.
func (c *requests) Each(fn func(t Tag, psn wire.PSN, op wire.Opcode, since clock.Time)) {
	for pos := c.una; pos != c.tail; pos++ {
		e := c.at(pos)
		fn(e.tag, c.unaPSN.Add(int(pos-c.una)), e.bth.Opcode, e.since)
	}
}

// InFlight calls fn for each request that was sent and not answered, the oldest first, with the bytes of its
// frame's payload and headers.
func (c *requests) InFlight(fn func(t Tag, bytes int)) {
	for pos := c.una; pos != c.high; pos++ {
		e := c.at(pos)
		fn(e.tag, len(e.payload)+frameHeaders)
	}
}

// frameHeaders is the length of a request without payload: Ethernet, IPv4, UDP, BTH, RETH and ICRC.
const frameHeaders = 14 + 20 + 8 + 12 + 16 + 4

// Sent returns the tag of the request in flight whose PSN on the connection is psn.
func (c *requests) Sent(psn wire.PSN) (t Tag, ok bool) {
	n := int(wire.Diff(psn, c.unaPSN))
	if n < 0 || n >= c.Outstanding() {
		return Tag{}, false
	}
	return c.at(c.una + uint32(n)).tag, true
}

// Attach makes the Conn use a new connection. It is called when the Conn has no connection, or its
// connection has failed.
func (c *Conn) Attach(l Link) {
	l.Depth = max(1, l.Depth)
	c.Requests.link, c.Requests.state = l, Up
	c.Requests.unaPSN, c.recvPSN, c.recvMSN, c.recvNak = l.SendPSN, l.RecvPSN, 0, false
	c.naks, c.implied, c.refused = 0, false, false
	c.heard()
	c.rtoAt, c.rnrAt = clock.Never, clock.Never
}

// Detach ends the connection at the user's request, without a call of User.Failed. All requests end
// as Lost.
func (c *Conn) Detach(ctx *pipeline.Ctx) {
	if c.Requests.state == Up {
		c.fail(ctx, Lost, "")
	}
}

// Submit queues a request, and sends it if the window allows. f is the request as the server must
// receive it, except for path, PSN and AckReq. Submit copies f and its payload. The result is false
// if there is no room: see Room.
func (c *Conn) Submit(ctx *pipeline.Ctx, f *wire.Frame, t Tag) bool {
	if !c.take(ctx, f, t) {
		return false
	}
	if !c.busy {
		c.pump(ctx)
	}
	return true
}

// SubmitInPlace queues a request like Submit, but may leave the transmission to the caller. If
// `now` is true, SubmitInPlace has changed f into the packet to send, and the caller must send f.
// note explains the packet in captures. ok is false if there was no room for the request.
func (c *Conn) SubmitInPlace(ctx *pipeline.Ctx, f *wire.Frame, t Tag) (ok, now bool, note string) {
	if !c.take(ctx, f, t) {
		return false, false, ""
	}
	if c.busy || c.Requests.next != c.Requests.tail-1 || !c.maySend() {
		if !c.busy {
			c.pump(ctx)
		}
		return true, false, ""
	}
	note = c.depart(ctx, f)
	c.arm(ctx.Now)
	return true, true, note
}

// SendsNow reports whether Submit would send a request with this opcode and n bytes of payload at
// once.
func (c *Conn) SendsNow(op wire.Opcode, n int) bool {
	return c.Requests.Room(n) && c.Requests.next == c.Requests.tail && c.mayPass(op.Is(wire.OpRead|wire.OpAtomic))
}

// Spare returns how many WRITEs Submit would send without delay, because the window has room and Limits.Rate
// allows them.
func (c *Conn) Spare() int {
	if c.Requests.next != c.Requests.tail || !c.mayPass(false) {
		return 0
	}
	return c.pace.allows(c.window-int(c.Requests.next-c.Requests.una), c.Requests.link.MTU)
}

// SubmitOnce sends a WRITE of which it keeps no payload, because a switch has no room for copies of
// packets. If the WRITE must be retransmitted, a WRITE of no bytes with the same PSN takes its
// place. So all later requests stay valid, but the payload may be lost, and the answer is Acked all
// the same. The result is false if the WRITE cannot be sent at once (SendsNow).
func (c *Conn) SubmitOnce(ctx *pipeline.Ctx, f *wire.Frame, t Tag) bool {
	c.pace.resume(ctx.Now)
	if !c.SendsNow(f.BTH.Opcode, len(f.Payload)) {
		c.stats.NoRoom++
		return false
	}
	payload, length := f.Payload, f.RETH.Length
	f.Payload, f.RETH.Length = nil, 0
	c.take(ctx, f, t)
	f.Payload, f.RETH.Length = payload, length
	c.Requests.at(c.Requests.next).once = true
	note := c.depart(ctx, f)
	c.arm(ctx.Now)
	ctx.Emit(f, note)
	return true
}

// take appends a request to the ring if there is room, and reports whether there was.
func (c *Conn) take(ctx *pipeline.Ctx, f *wire.Frame, t Tag) bool {
	c.pace.resume(ctx.Now)
	if !c.Requests.Room(len(f.Payload)) {
		c.stats.NoRoom++
		return false
	}
	c.stats.Submitted++
	c.Requests.grow()
	e := c.Requests.at(c.Requests.tail)
	c.Requests.tail++
	e.tag, e.since, e.sent, e.once = t, ctx.Now, false, false
	c.Requests.store(e, f)
	return true
}

func (c *requests) store(e *entry, f *wire.Frame) {
	e.bth, e.reth, e.atomic = f.BTH, f.RETH, f.AtomicETH
	if e.class = f.IPv4.TOS; f.V6 {
		e.class = f.IPv6.TrafficClass
	}
	e.payload = append(e.payload[:0], f.Payload...)
}

// load fills the scratch frame with the request of an entry, as it was submitted.
func (c *Conn) load(e *entry) {
	c.tx = wire.Frame{V6: c.Requests.link.To.V6}
	c.tx.IPv4.TOS, c.tx.IPv6.TrafficClass = e.class, e.class
	c.tx.BTH, c.tx.RETH, c.tx.AtomicETH, c.tx.Payload = e.bth, e.reth, e.atomic, e.payload
}

// Oldest returns when the oldest unanswered request was submitted. The bool is false if there is
// none.
func (c *requests) Oldest() (clock.Time, bool) {
	if c.una == c.tail {
		return 0, false
	}
	return c.at(c.una).since, true
}

// Newest returns the position after the newest request. The caller passes it to HasEnded later.
func (c *requests) Newest() uint32 { return c.tail }

// HasEnded reports whether all requests before a position have ended. The position must be less
// than 2^31 requests in the past.
func (c *requests) HasEnded(pos uint32) bool { return int32(c.una-pos) >= 0 }

// Bounds returns Ring and Waiting, with defaults applied.
func (c Config) Bounds() (ring, waiting int) {
	c = c.withDefaults()
	return c.Ring, c.Waiting
}

// Ring returns how many requests may be in flight.
func (c *requests) Ring() int { return c.cfg.Ring }
