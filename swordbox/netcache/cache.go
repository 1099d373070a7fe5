package netcache

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
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
	// waits are GETs that wait for the READ of a value; free are the indices of those that wait for none.
	waits []wait
	free  []int
	stats Stats
	buf   []byte // scratch: a frame, or a cell
	out   []byte // scratch: an answer
}

// wait is a GET that waits in the switch. It owns the bytes of the frame.
type wait struct {
	frame packetio.Frame
	in    int // the port at which it came in
	at    int
	fill  uint32
	since clock.Time
	inUse bool
}

const (
	// maxWaits is how many GETs of a rule may wait for READs, and maxFrame how many bytes such a GET can have.
	maxWaits, maxFrame = 512, 512
)

func (m *Machine) newCache(l *Layout, addrs []netip.Addr) *cache {
	m.begun++
	k := &cache{Layout: *l, m: m, number: wire.PSN(m.begun & 0xffffff), index: newIndex(l.Cells, l.Hot, l.Age), askeds: newAskeds(), waits: make([]wait, maxWaits)}
	k.own(addrs)
	for i := range k.waits {
		k.waits[i].frame.Data = make([]byte, 0, maxFrame)
		k.free = append(k.free, i)
	}
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
)

// take handles a frame that has arrived; p are its headers. It returns false if the switch goes on with it.
func (k *cache) take(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet) bool {
	switch to, from := k.has(&p.dst, p.v6), k.has(&p.src, p.v6); {
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
	who, h := sender{p.src, p.srcPort, r.id}, hashOf(begin, r.key)
	switch r.kind {
	case Get:
		k.stats.Gets++
		switch at, does := k.index.get(c.Now, r.key, h); does {
		case Read:
			if k.wait(c, in, f, at) {
				return true
			}
		case Probe:
			if k.probe(c, in, f, p, who, at, h) {
				return true
			}
		case Forward, Store:
		}
		k.stats.Forwarded++
	case Write:
		k.stats.Writes++
		k.index.changes(h, evWrite)
	case Gets, Many:
	}
	k.askeds.add(who, r.kind, h)
	return false
}

// probe forwards a GET under a number of the switch's own. It returns false if there is none free.
func (k *cache) probe(c *pipeline.Ctx, in int, f *packetio.Frame, p *packet, who sender, at int, h uint64) bool {
	ch, _ := k.place(at)
	fill := k.index.asks(c.Now, at)
	port, id, ok := uint16(0), uint16(0), false
	if ch.writes(k.Size) {
		port, id, ok = k.probes.begin(&k.m.numbers, probe{client: who, at: at, fill: fill, hash: h}, func(x *probe) bool {
			q := &k.index.places[x.at]
			return q.fill == x.fill && q.state == Asked && c.Now.Sub(q.since) <= patience
		})
	}
	if !ok {
		k.index.step(at, evOld)
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
func (k *cache) wait(c *pipeline.Ctx, in int, f *packetio.Frame, at int) bool {
	ch, offset := k.place(at)
	if len(k.free) == 0 || len(f.Data) > maxFrame || !ch.reads() {
		k.stats.Busy++
		return false
	}
	i := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	w, p := &k.waits[i], &k.index.places[at]
	b := append(w.frame.Data[:0], f.Data...)
	*w = wait{frame: *f, in: in, at: at, fill: p.fill, since: c.Now, inUse: true}
	w.frame.Data, w.frame.Open = b, nil
	ch.read(c, offset, cellHead+p.length, i)
	return true
}

// came ends the wait of a GET. b is what the READ has found; nil if it has failed. The value answers the GET if the
// place has it at this moment: not if a write has ended, or another value was seen, while the READ was in flight.
func (k *cache) came(c *pipeline.Ctx, i int, b []byte) {
	w := &k.waits[i]
	f, p := &w.frame, &k.index.places[w.at]
	w.inUse = false
	k.free = append(k.free, i)
	var h packet
	if !h.parse(f.Data) || h.payload == nil {
		return
	}
	r, _ := parseRequest(h.payload)
	current := p.used && p.fill == w.fill && p.state == Warm && c.Now.Sub(p.since) <= k.Age
	body, ok := p.holds(b)
	switch {
	case current && ok:
		k.stats.Answered++
		k.stats.WaitedNS += uint64(c.Now.Sub(w.since))
		k.out = h.appendAnswer(k.out[:0], f.Data, body)
		c.Resume(k.port, -1, packetio.Frame{Data: k.out}, "cache: answered with a value in a server's memory")
		return
	case current:
		k.stats.Lost++
		k.index.ends(w.at, w.fill, evLost)
	default:
		k.stats.Stale++
	}
	k.stats.Forwarded++
	k.askeds.add(sender{h.src, h.srcPort, r.id}, Get, hashOf(begin, r.key))
	c.Resume(w.in, -1, *f, "cache: no value")
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
		if q, ok := k.probes.end(p.dst, p.dstPort, a.id); ok {
			k.probed(c, in, f, p, &a, &q)
			return true
		}
	}
	switch x := k.askeds.find(&sender{p.dst, p.dstPort, a.id}); {
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
	if k.index.answered(q, a.whole, fits, a.digest, len(a.body)) == Store {
		ch, offset := k.place(q.at)
		k.out = appendCell(k.out[:0], q.fill, a.body)
		if ch.writes(len(k.out)) && ch.write(c, offset, k.out, q.at, q.fill) {
			k.stats.Filled++
		} else {
			k.index.ends(q.at, q.fill, evLost)
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
	for i := range k.waits {
		if w := &k.waits[i]; w.inUse {
			k.stats.Dropped++
			w.inUse = false
		}
	}
}
