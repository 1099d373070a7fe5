package simrack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const (
	// maxPosts is how many packets of each kind transits remembers for each connection: the last
	// request packets that the client has sent, and the last ones that the switch has moved to the
	// connection.
	maxPosts = 256
	// maxStays bounds how many stays (of a packet in the switch) are measured for each thread
	// between two calls of InSwitch. Further ones are not measured.
	maxStays = 4096
)

// transits measures for each thread how long the packets of its requests, and of their responses,
// are inside the switch. The connection and the PSN of a packet say which thread has posted the
// request. A packet is inside from its arrival until it leaves, whether the switch works on it or
// holds it. If the switch answers for a server, or one response answers several requests, that
// response ends the stays of all requests of its thread that it answers. A nil *transits measures
// nothing.
type transits struct {
	rack    *Rack
	threads map[*simnet.Proc]*thread
	conns   map[connID]*connection
	// ends has the connection of each queue pair to which servers send responses.
	ends  map[end]connID
	frame wire.Frame
	// last is the packet that has arrived at the switch last, with the thread that has posted its
	// request. thread is nil if transits does not measure how long that packet is in the switch.
	last struct {
		*thread
		packet
	}
}

// connID names a connection by the server's end, to which requests go.
type connID struct {
	server netip.Addr
	qpn    wire.QPN
}

// end is the requester's end of a connection with a server.
type end struct {
	connID
	requester netip.Addr
}

type connection struct {
	posts []post // packets that the client's threads have posted, in the order of their PSNs
	moved []move // requests that the switch has moved onto this connection, in the order of their PSNs here
}

// post is a request packet. by is the thread that has posted the request, and phase the value of
// by.phase at that time.
type post struct {
	psn   wire.PSN
	by    *thread
	phase int
}

// move is a request that the switch has moved to another connection. psn is its PSN on that
// connection. The field `from` names the packet that the client has sent.
type move struct {
	psn  wire.PSN
	from packet
}

// packet names a packet by the client's connection and the PSN. A response may have a higher PSN
// than a request that it answers, because it may answer several requests.
type packet struct {
	connID
	psn      wire.PSN
	response bool
}

// thread records when packets of one client thread were in the switch, since this thread last
// called InSwitch. phase counts the thread's calls of InSwitch.
type thread struct {
	phase  int
	inside map[packet]clock.Time // when each packet that is in the switch has arrived there
	stays  []stay
}

// stay is the stay of one packet in the switch: from its arrival until it leaves.
type stay struct{ from, to clock.Time }

// posted is called when a call of the running thread has made the thread's NIC send frames.
func (t *transits) posted(frames []packetio.Frame) {
	p := t.rack.net.Current()
	if p == nil {
		return
	}
	for i := range frames {
		f := &t.frame
		if wire.ParseFrame(frames[i].Data, f) != nil || !f.BTH.Opcode.Is(wire.OpRequest) {
			continue
		}
		c := t.conn(connID{f.DstAddr().Unmap(), f.BTH.DestQP})
		if n := len(c.posts); n > 0 && wire.Diff(f.BTH.PSN, c.posts[n-1].psn) <= 0 {
			continue // f is a retransmission
		}
		by := t.threads[p]
		if by == nil {
			by = &thread{inside: map[packet]clock.Time{}}
			t.threads[p] = by
		}
		c.posts = push(c.posts, post{f.BTH.PSN, by, by.phase})
	}
}

// push appends v to list. If the list has maxPosts elements, push removes the first one.
func push[T any](list []T, v T) []T {
	if len(list) == maxPosts {
		list = append(list[:0], list[1:]...)
	}
	return append(list, v)
}

func (t *transits) conn(id connID) *connection {
	c := t.conns[id]
	if c == nil {
		c = new(connection)
		t.conns[id] = c
	}
	return c
}

// learn is called for a request f. It notes to which queue pair the server will send the response.
func (t *transits) learn(f *wire.Frame) {
	id := connID{f.DstAddr().Unmap(), f.BTH.DestQP}
	for _, h := range t.rack.hosts {
		if h.Addr() != id.server {
			continue
		}
		if qpn, ok := h.eng.Listing().PeerOf(id.qpn); ok {
			t.ends[end{connID{id.server, qpn}, f.SrcAddr().Unmap()}] = id
		}
	}
}

// parse returns the packet in a frame, named by the queue pair of the server and the PSN. ok is
// false if the frame is no request and no response of a known connection.
func (t *transits) parse(frame []byte) (p packet, ok bool) {
	f := &t.frame
	if wire.ParseFrame(frame, f) != nil {
		return p, false
	}
	switch {
	case f.BTH.Opcode.Is(wire.OpRequest):
		p = packet{connID{f.DstAddr().Unmap(), f.BTH.DestQP}, f.BTH.PSN, false}
	case f.BTH.Opcode.Is(wire.OpResponse):
		p.response, p.psn = true, f.BTH.PSN
		p.connID, ok = t.ends[end{connID{f.SrcAddr().Unmap(), f.BTH.DestQP}, f.DstAddr().Unmap()}]
		return p, ok
	default:
		return p, false
	}
	return p, true
}

// original returns the client's packet for packet p of a connection to which the switch has moved
// the client's request. It returns p itself if the switch has moved no request there.
func (t *transits) original(p packet) packet {
	c := t.conns[p.connID]
	if c == nil {
		return p
	}
	for _, m := range slices.Backward(c.moved) {
		if d := wire.Diff(p.psn, m.psn); d >= 0 {
			p.connID, p.psn = m.from.connID, m.from.psn.Add(int(d))
			break
		}
	}
	return p
}

// owner returns the thread that has posted the request of packet p. It returns nil if no thread is
// known, or if the thread has called InSwitch since.
func (t *transits) owner(p packet) *thread {
	c := t.conns[p.connID]
	if c == nil {
		return nil
	}
	for _, o := range slices.Backward(c.posts) {
		if wire.Diff(p.psn, o.psn) >= 0 {
			if o.phase != o.by.phase {
				return nil
			}
			return o.by
		}
	}
	return nil
}

// arrive is called when a frame reaches the switch. It records that the stay of the frame's packet
// in the switch begins now.
func (t *transits) arrive(now clock.Time, frame []byte) {
	if t == nil {
		return
	}
	t.last.thread = nil
	p, ok := t.parse(frame)
	if !ok {
		return
	}
	if p.response {
		p = t.original(p)
	} else {
		t.learn(&t.frame)
	}
	by := t.owner(p)
	if by == nil {
		return
	}
	if _, held := by.inside[p]; !held && len(by.stays)+len(by.inside) < maxStays {
		by.inside[p] = now
		t.last.thread, t.last.packet = by, p
	}
}

// depart is called when a frame leaves the switch, at the time `at`. It ends the measured time of
// the frame's packet inside the switch. If the packet is a response, depart also ends the measured
// times of the requests which the response answers and which the switch has not sent on.
func (t *transits) depart(at clock.Time, frame []byte) {
	if t == nil {
		return
	}
	p, ok := t.parse(frame)
	if !ok {
		return
	}
	if !p.response {
		t.learn(&t.frame)
		p = t.original(p)
	}
	by := t.owner(p)
	if by == nil {
		return
	}
	for o, from := range by.inside {
		if o == p || p.response && o.connID == p.connID && wire.Diff(o.psn, p.psn) <= 0 {
			by.stays = append(by.stays, stay{from, at})
			delete(by.inside, o)
		}
	}
}

// Moved implements pipeline.Follower: the switch has moved a request to another connection. from
// and to name the request before and after the move.
func (t *transits) Moved(from, to pipeline.RequestID) {
	p := packet{connID: connID{from.Server.Unmap(), from.QPN}, psn: from.PSN}
	c := t.conn(connID{to.Server.Unmap(), to.QPN})
	if n := len(c.moved); n > 0 && wire.Diff(to.PSN, c.moved[n-1].psn) <= 0 {
		return // the request is sent again
	}
	c.moved = push(c.moved, move{to.PSN, p})
}

// Dropped implements pipeline.Follower: the switch has dropped the packet that arrived last.
func (t *transits) Dropped() {
	if t.last.thread != nil {
		delete(t.last.inside, t.last.packet)
		t.last.thread = nil
	}
}

// InSwitch implements kv.Switched for the running thread: it returns for how long the thread's
// packets were in the switch since the last call.
func (b *shell) InSwitch() time.Duration {
	t := b.host.rack.transits
	if t == nil {
		return 0
	}
	by := t.threads[b.net().Current()]
	if by == nil {
		return 0
	}
	return by.take(b.Now())
}

// take is called by InSwitch. It returns for how long at least one of the thread's packets was
// inside the switch since the last call, and forgets these packets.
func (b *thread) take(now clock.Time) (sum time.Duration) {
	for _, from := range b.inside {
		b.stays = append(b.stays, stay{from, now})
	}
	slices.SortFunc(b.stays, func(x, y stay) int { return int(x.from - y.from) })
	var until clock.Time
	for _, s := range b.stays {
		s.from, s.to = max(s.from, until), min(s.to, now)
		if s.to > s.from {
			sum += s.to.Sub(s.from)
			until = s.to
		}
	}
	b.phase++
	b.stays = b.stays[:0]
	clear(b.inside)
	return sum
}
