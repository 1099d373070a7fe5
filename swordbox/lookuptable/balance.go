package lookuptable

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const (
	// maxLearning is how many connections of a table may wait for the WRITE of their entry, and maxHeld
	// how many of their frames the switch keeps meanwhile.
	maxLearning, maxHeld = 256, 256
	// maxClosing is how many connections that end the switch remembers. The entry of a further one
	// stays until a connection with the same ports ends.
	maxClosing = 1 << 16
	// linger is how long the entry of a connection stays behind its last packet when one end has
	// closed it: as long as the other end may still send.
	linger = 10 * time.Second
)

// Reasons why the switch drops a frame to a virtual address.
const (
	ReasonStray   pipeline.Reason = "of no connection to the virtual address"
	ReasonNoEntry pipeline.Reason = "no room for the entry of a connection"
	ReasonEnding  pipeline.Reason = "the entry of the former connection with these ports is being removed"
)

// balancer spreads the connections to a virtual address over a pool of hosts (SilkRoad, SIGCOMM 2017).
// The entry of a connection, in the memory of a server, says to which host it goes. The zero value has
// no connections.
type balancer struct {
	// learning has the connections whose entry is being written, and those whose lookups may have read
	// the slots before it was. held is how many frames wait for these entries.
	learning map[Key]*learning
	held     int
	// closing has the connections that end, each once, in the order in which they are checked, and until has
	// until when their entries stay: as long as they exist for one whose ports are used again.
	closing []closing
	until   map[Key]clock.Time
	// removing has the connections whose entries are being removed.
	removing map[Key]bool
}

// learning is a connection without an entry so far. Its first packet leaves the switch when the
// server has the entry: a switch that crashes before would send the next packet to another host if
// the pool has changed.
type learning struct {
	hash    uint64
	action  Action
	written bool
	held    []waiting
}

// done reports whether no entry is being written; x may be nil.
func (x *learning) done() bool { return x == nil || x.written }

// closing is a connection to check at a time.
type closing struct {
	key Key
	at  clock.Time
}

// waiting is a frame that came in at port in. It owns its bytes.
type waiting struct {
	in    int
	frame packetio.Frame
}

// balances reports whether the table is that of a virtual address.
func (l *Layout) balances() bool { return l.VIP.IsValid() }

// toVIP reports whether packets with a key go to the virtual address.
func (l *Layout) toVIP(k *Key) bool {
	return k.DstPort == l.Port && (k.Proto == protoTCP || k.Proto == protoUDP) && k.V6 == l.VIP.Is6() && k.Dst == bytesOf(l.VIP)
}

// serves reports whether the host to which an action sends packets has connections: those of the pool,
// and those that get no new ones.
func (l *Layout) serves(a *Action) bool {
	to := addrOf(a.Addr, l.VIP.Is6())
	return slices.Contains(l.Pool, to) || slices.Contains(l.Drain, to)
}

// backend returns the action for a new connection: a hash of the key chooses a host of the pool.
func (l *Layout) backend(h uint64) Action {
	to := l.Pool[h*0xd6e8feb86659fd93>>33%uint64(len(l.Pool))]
	return Action{Ops: OpDestination, Addr: bytesOf(to)}
}

// Flags of TCP.
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
)

// tcpFlags returns the flags of a TCP packet; 0 if the frame has none.
func (v *view) tcpFlags(b []byte) byte {
	if v.proto != protoTCP || !v.ports {
		return 0
	}
	return b[v.l4+13]
}

// opens reports whether a frame may be the first one of a connection: a SYN, or any packet of UDP.
func (v *view) opens(b []byte) bool {
	return v.proto == protoUDP && v.ports || v.tcpFlags(b)&(flagSYN|flagRST) == flagSYN
}

// learn handles a frame to the virtual address whose connection has no entry, or the entry of a host
// that serves it no more. The frame waits until the server has an entry.
func (t *Table) learn(c *pipeline.Ctx, l *Lookup, f packetio.Frame, v *view) {
	x := t.learning[l.Key]
	switch {
	case x != nil && x.written && t.serves(&x.action):
		t.stats.Hits++
		t.apply(c, l.In, f, v, &l.Key, &x.action, "by the entry of its connection")
		return
	case x != nil && !x.written:
		t.hold(c, x, l.In, f)
		return
	case !v.opens(f.Data):
		t.Refuse(c, l.In, f, &t.stats.Misses, ReasonStray)
		return
	}
	t.sweep()
	if x = (&learning{hash: l.Hash, action: t.backend(l.Hash)}); len(t.learning) >= maxLearning || !t.write(&Entry{l.Key, x.action}, l.Hash) {
		t.Refuse(c, l.In, f, &t.stats.Full, ReasonNoEntry)
		return
	}
	if t.learning == nil {
		t.learning = make(map[Key]*learning)
	}
	t.forget(&l.Key) // an entry of a host that is served no more
	t.learning[l.Key] = x
	t.hold(c, x, l.In, f)
}

// write begins to write the entry of a new connection. It returns false if too many changes wait.
func (t *Table) write(e *Entry, h uint64) bool {
	server, _ := t.Place(h)
	b, ok := t.links[server].srv.(*bouncer) // a published table has no virtual address
	return ok && b.learn(e, h)
}

func (t *Table) hold(c *pipeline.Ctx, x *learning, in int, f packetio.Frame) {
	if t.held >= maxHeld {
		t.Refuse(c, in, f, &t.stats.Full, ReasonNoEntry)
		return
	}
	t.held++
	f.Data, f.Open = slices.Clone(f.Data), nil
	x.held = append(x.held, waiting{in, f})
}

// learnt is called when the server has the entry of a connection, or (ok is false) has no room for it.
// The frames that wait for it go on.
func (t *Table) learnt(c *pipeline.Ctx, k *Key, ok bool) {
	x := t.learning[*k]
	if x == nil || x.written {
		return // the table is another one now
	}
	held := x.held
	t.held -= len(held)
	serves := t.serves(&x.action) // the host may have been taken out meanwhile
	if ok {
		t.stats.Learnt++
	}
	if x.written, x.held = true, nil; ok && serves {
		t.cache.put(k, &x.action, x.hash)
	} else {
		delete(t.learning, *k)
	}
	for _, w := range held {
		var v view
		switch {
		case !ok:
			t.Refuse(c, w.in, w.frame, &t.stats.Full, ReasonNoEntry)
		case !serves:
			t.Refuse(c, w.in, w.frame, &t.stats.Misses, ReasonStray)
		case v.parse(w.frame.Data):
			t.stats.Hits++
			t.apply(c, w.in, w.frame, &v, k, &x.action, "by the new entry of its connection")
		}
	}
}

// sweep forgets the connections whose entry is in the server's memory, and of which no lookup is in
// flight: a later lookup reads the entry.
func (t *Table) sweep() {
	for k, x := range t.learning {
		server, _ := t.Place(x.hash)
		if x.written && !t.links[server].srv.Busy(x.hash) {
			delete(t.learning, k)
		}
	}
}

// closes notes that a packet of a connection with an entry has come. If the packet ends the connection, its
// entry is removed when no further packet has come for a while.
func (t *Table) closes(now clock.Time, k *Key, flags byte) {
	at, known := t.until[*k]
	ends := flags&(flagFIN|flagRST) != 0
	switch {
	case known && flags&flagSYN != 0: // the ports are used again
		t.until[*k] = clock.Never
	case known && (ends || at != clock.Never):
		t.until[*k] = now.Add(linger)
	case !known && ends && len(t.closing) < maxClosing:
		if t.until == nil {
			t.until = make(map[Key]clock.Time)
		}
		t.until[*k] = now.Add(linger)
		t.closing = append(t.closing, closing{*k, now.Add(linger)})
	}
}

// deadline returns when the entry of a connection may have to be removed.
func (t *Table) deadline() clock.Time {
	if len(t.closing) == 0 {
		return clock.Never
	}
	return t.closing[0].at
}

// expire removes entries of connections that have ended.
func (t *Table) expire(c *pipeline.Ctx) {
	if t.deadline() > c.Now {
		return
	}
	for len(t.closing) > 0 && t.closing[0].at <= c.Now {
		k := t.closing[0].key
		t.closing = t.closing[1:]
		at := t.until[k]
		switch {
		case at == clock.Never: // its ports are used again
			delete(t.until, k)
			continue
		case at > c.Now: // packets have come
		case t.end(&k):
			delete(t.until, k)
			continue
		default: // too many changes wait
			at = c.Now.Add(linger)
			t.until[k] = at
		}
		t.closing = append(t.closing, closing{k, at})
	}
	for _, l := range t.links {
		l.srv.Work(c)
	}
}

// end begins to remove the entry of a connection that has ended. It returns false if too many changes wait.
func (t *Table) end(k *Key) bool {
	h := t.Hash.sum(k)
	server, _ := t.Place(h)
	b, ok := t.links[server].srv.(*bouncer) // a published table has no virtual address
	if !ok || !b.end(k, h) {
		return false
	}
	if t.removing == nil {
		t.removing = make(map[Key]bool)
	}
	t.removing[*k] = true
	t.forget(k)
	return true
}

// returns are the tables whose packets a host answers.
type returns struct {
	port   int
	tables []*Table
}

// back handles a frame that has arrived from a host that serves virtual addresses: in an answer, the
// source becomes the virtual address. It returns false if the frame is no answer.
func (r *returns) back(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	var v view
	if !v.parse(f.Data) {
		return false
	}
	k := v.key(f.Data, true)
	for _, t := range r.tables {
		from := Action{Addr: k.Src}
		if k.SrcPort != t.Port || k.V6 != t.VIP.Is6() || !t.serves(&from) || t.m.port(addrOf(k.Dst, k.V6)) != t.port {
			continue
		}
		a := Action{Ops: OpSource, Addr: bytesOf(t.VIP)}
		if !a.fits(f.Data, &v) { // it is RoCEv2, whose ports are of no connection
			continue
		}
		if v.tcpFlags(f.Data)&flagRST != 0 { // the host refuses or ends the connection
			to := Key{Src: k.Dst, Dst: a.Addr, SrcPort: k.DstPort, DstPort: k.SrcPort, Proto: k.Proto, V6: k.V6}
			t.closes(c.Now, &to, flagRST)
		}
		t.stats.Returned++
		t.buf = append(t.buf[:0], f.Data...)
		f.Data = t.buf
		a.apply(&f, &v, true, t.m.cfg.MAC)
		c.Resume(in, -1, f, "the answer of a host of a virtual address")
		return true
	}
	return false
}

// backends returns the ports of the hosts that serve virtual addresses, each with the tables of these.
func (m *Machine) backends() (list []*returns) {
	for _, t := range m.tables {
		for _, a := range slices.Concat(t.Pool, t.Drain) {
			p := m.port(a)
			if p < 0 {
				continue
			}
			at := slices.IndexFunc(list, func(r *returns) bool { return r.port == p })
			if at < 0 {
				at, list = len(list), append(list, &returns{port: p})
			}
			list[at].tables = append(list[at].tables, t)
		}
	}
	return list
}
