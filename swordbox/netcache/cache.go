package netcache

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// cache is the cache of a rule, in front of one key-value server.
type cache struct {
	Layout
	m      *Machine
	id     string     // ID of the rule
	port   int        // of the key-value server
	server netip.Addr // its first address
	addrs  [][16]byte
	v6     []bool   // whether each of addrs is an address of IPv6
	number wire.PSN // of the cache among those of the machine
	index  index
	askeds askeds
	probes probes
	links  []*channel
	waits  waits
	stats  Stats
	// crowded is whether a held GET waits for room for its READ.
	crowded bool
	holds   []int  // scratch: indices of GETs
	buf     []byte // scratch: a frame, or a cell
	out     []byte // scratch: an answer
}

func (m *Machine) newCache(l *Layout, addrs []netip.Addr) *cache {
	m.begun++
	k := &cache{Layout: *l, m: m, number: wire.PSN(m.begun & 0xffffff), index: newIndex(l.Cells, l.Hot, l.Age), askeds: newAskeds(), waits: newWaits()}
	k.own(addrs)
	return k
}

// own sets the addresses of the key-value server.
func (k *cache) own(addrs []netip.Addr) {
	k.addrs, k.v6 = nil, nil
	for _, a := range addrs {
		var b [16]byte
		if a = a.Unmap(); a.Is4() {
			x := a.As4()
			copy(b[:], x[:])
		} else {
			b = a.As16()
		}
		k.addrs, k.v6 = append(k.addrs, b), append(k.v6, a.Is6())
	}
}

func (k *cache) has(a *[16]byte, v6 bool) bool {
	for i := range k.addrs {
		if k.addrs[i] == *a && k.v6[i] == v6 {
			return true
		}
	}
	return false
}

// begun is called when a connection has begun. The nonce of the first one makes the numbers of probes differ from
// those of a former incarnation of the switch; all caches of this one go on from there, also those of rules that change.
func (k *cache) begun(nonce uint32) {
	if n := &k.m.numbers; !n.begun {
		n.begun, n.next = true, nonce%(probePorts<<16)
	}
}

// Reasons why the switch drops a frame.
const (
	ReasonTCP   pipeline.Reason = "not by UDP to a cached server"
	ReasonProbe pipeline.Reason = "late answer to a probe"
	// ReasonUnread: a write in it would pass unseen.
	ReasonUnread pipeline.Reason = "not one whole UDP packet to a cached server"
	// ReasonSpoofed: it has the address of the key-value server, and comes from another port.
	ReasonSpoofed pipeline.Reason = "spoofed source"
)

// take handles a frame that has arrived; p are its headers. It returns false if the switch goes on with it.
func (k *cache) take(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet) bool {
	switch to, from := k.has(&p.dst, p.v6), k.has(&p.src, p.v6); {
	case from && in != k.port: // it would make values unknown, or be taken for the answer to a probe
		k.stats.Spoofed++
		c.Drop(in, ReasonSpoofed, *f)
		return true
	case to && p.ports && p.dstPort == k.Port && p.proto == protoTCP, from && p.ports && p.srcPort == k.Port && p.proto == protoTCP:
		k.stats.TCP++
		c.Drop(in, ReasonTCP, *f)
		return true
	case to && (p.ports && p.dstPort == k.Port && p.payload == nil || p.hides()):
		k.stats.Unread++
		c.Drop(in, ReasonUnread, *f)
		return true
	case to && p.ports && p.dstPort == k.Port:
		return p.intact(f) && k.asks(c, in, f, p)
	case from && p.ports && p.srcPort == k.Port:
		return k.answers(c, in, f, p)
	case from && p.hides(): // it may be an answer
		k.forget()
	}
	return false
}

// forget makes all values unknown, because an answer may show another value of any key.
func (k *cache) forget() {
	k.stats.Forgotten++
	k.index.clear()
}

// asks handles a datagram to the server.
func (k *cache) asks(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet) bool {
	r, ok := parseRequest(p.payload)
	if !ok {
		return false // the server does not answer it
	}
	who, h := p.sender(r.id), hashOf(begin, r.key)
	switch r.kind {
	case Get:
		k.stats.Gets++
		if !p.answerable(f.Data) {
			break
		}
		switch at, fill, does := k.index.get(c.Now, h, k.lent()); does {
		case Read:
			if k.wait(c, in, f, at, h) {
				return true
			}
		case Hold:
			if k.hold(c, in, f, at, h) {
				return true
			}
		case Probe:
			if k.probe(c, in, f, p, probe{client: who, at: at, fill: fill, hash: h}) {
				return true
			}
		case Forward, Store:
		}
	case Write:
		k.stats.Writes++
		k.index.changes(h, evWrite)
	case Gets, Many:
	}
	if r.kind == Get {
		k.stats.Forwarded++
	}
	k.askeds.add(who, r.kind, h)
	return false
}

// lent reports whether a server lends its memory, so that a key may get a place. Without this, a rule for more values
// than any server has room for would only fill the switch.
func (k *cache) lent() bool {
	return slices.ContainsFunc(k.links, func(ch *channel) bool { return ch.Usable() })
}

// probe forwards a GET under a number of the switch's own. It returns false if there is none free.
func (k *cache) probe(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet, q probe) bool {
	ch, _ := k.place(q.at)
	port, id, ok := uint16(0), uint16(0), false
	if ch.writes(k.Size) {
		port, id, ok = k.probes.begin(&k.m.numbers, q, c.Now)
	}
	if !ok {
		k.index.step(q.at, evOld)
		return false
	}
	k.stats.Forwarded++
	k.stats.Probes++
	k.buf = append(k.buf[:0], f.Data...)
	g := *f
	g.Data = k.buf
	p.renumber(&g, 0, port, id)
	c.Resume(in, -1, g, "cache: a probe")
	return true
}

// place returns where the cell of a place is.
func (k *cache) place(at int) (ch *channel, offset uint64) {
	server, offset := k.Place(uint64(at))
	return k.links[server], offset
}

// wait lets a GET wait for a READ of its value. It returns false if no READ can be sent, or there is no room.
func (k *cache) wait(c *pipeline.Ctx, in int, f *packetio.Frame, at int, hash uint64) bool {
	if ch, _ := k.place(at); !k.waits.room(f) || !ch.reads() {
		k.stats.Busy++
		return false
	}
	k.read(c, k.waits.begin(f, in, at, hash, k.index.at(at).fill, c.Now))
	return true
}

// read sends the READ of a GET that waits.
func (k *cache) read(c *pipeline.Ctx, i int) {
	at := k.waits.list[i].at
	ch, offset := k.place(at)
	ch.read(c, offset, cellHead+int(k.index.at(at).length), i)
}

// came ends the wait of a GET. b is what the READ has found; nil if it has failed. The value answers the GET if the
// place has it at this moment: not if a write has ended, or another value was seen, while the READ was in flight, or
// all values were forgotten.
func (k *cache) came(c *pipeline.Ctx, i int, b []byte) {
	w := k.waits.end(i)
	if w == nil { // it was too late
		return
	}
	f, p := &w.frame, k.index.at(w.at)
	var h packet
	h.parse(f.Data)
	r, _ := parseRequest(h.payload)
	current := p.used && p.fill == w.fill && p.state == Warm && c.Now.Sub(p.since) <= k.Age
	body, ok := p.holds(b, r.key)
	switch {
	case current && ok:
		k.stats.Answered++
		k.stats.WaitedNS += uint64(c.Now.Sub(w.since))
		k.out = h.appendAnswer(k.out[:0], f.Data, body)
		c.Resume(k.port, -1, packetio.Frame{Data: k.out}, "cache: answered with a value in a server's memory")
		return
	case current:
		k.stats.Lost++
		k.index.ends(w.at, uint32(w.fill), evLost)
	default:
		k.stats.Stale++
	}
	k.forward(c, w)
}

// forward sends a GET to the server that has waited for a value.
func (k *cache) forward(c *pipeline.Ctx, w *wait) {
	var p packet
	p.parse(w.frame.Data)
	r, _ := parseRequest(p.payload)
	k.stats.Forwarded++
	k.askeds.add(p.sender(r.id), Get, hashOf(begin, r.key))
	c.Resume(w.in, -1, w.frame, "cache: no value")
}

// tick ends waits that are too long.
func (k *cache) tick(c *pipeline.Ctx) {
	for {
		w, held := k.waits.late(c.Now)
		if w == nil {
			return
		}
		if held {
			k.index.leaves(w, true)
		}
		k.stats.Slow++
		k.forward(c, w)
	}
}

// answers handles a packet that comes from the server's port.
func (k *cache) answers(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet) bool {
	if p.payload == nil { // fragments
		k.forget()
		return false
	}
	if !p.intact(f) {
		return false // no client takes it
	}
	a, ok := parseAnswer(p.payload)
	if !ok {
		return false
	}
	if p.dstPort >= firstPort {
		if q, ok := k.probes.end(p.receiver(a.id)); ok {
			k.probed(c, in, f, p, &a, &q)
			return true
		}
	}
	to := p.receiver(a.id)
	switch x := k.askeds.find(&to); {
	case x == nil && p.dstPort >= firstPort: // no program has this port, so that no client learns what it shows
		k.stats.Late++
		c.Drop(in, ReasonProbe, *f)
		return true
	case x == nil || x.kind == Many:
		k.forget()
	case x.kind == Write:
		k.index.changes(x.hash, evDone)
	default:
		k.index.passes(x.hash, a.whole, a.digest)
	}
	return false
}

// probed handles the answer to a probe, and gives it to the client.
func (k *cache) probed(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet, a *answer, q *probe) {
	fits := !a.unique && cellHead+len(a.body) <= k.Size && hashOf(begin, a.key) == q.hash
	if k.index.answered(c.Now, q, a.whole, fits, a.digest, len(a.body)) == Store {
		ch, offset := k.place(q.at)
		k.out = appendCell(k.out[:0], uint32(q.fill), a.body)
		if ch.writes(len(k.out)) && ch.write(c, offset, k.out, q.at, uint32(q.fill)) {
			k.stats.Filled++
		} else {
			k.index.ends(q.at, uint32(q.fill), evLost)
		}
	}
	k.buf = append(k.buf[:0], f.Data...)
	g := *f
	g.Data = k.buf
	p.renumber(&g, 2, q.client.port, q.client.id)
	c.Resume(in, -1, g, "cache: the answer to a probe")
}

// end drops the GETs that wait, because the rule has gone. Clients send them again.
func (k *cache) end() {
	k.stats.Dropped += uint64(k.waits.count)
	k.waits = waits{}
}
