package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// netcacheOracle is the key-value server and its clients, and the history of their operations: a word for each key, whose
// value is the number of the write that has set the key, or 0 if the server has no such item. It uses no state of the
// switch. Datagrams are lost, doubled and delayed on each of the four hops between a client and the server.
type netcacheOracle struct {
	run     *netcacheRun
	draw    *draw
	log     history.Log
	items   []uint64 // by key: what the server has
	done    map[uint64]bool
	clients []*netcacheClient
	number  uint64 // of the newest write
	answers uint64 // that have ended an operation
	again   uint64 // writes that the server has executed a second time
	err     error  // the first error
	began   clock.Time
	down    bool // the server does not run
	// parts has the first of the two fragments of a datagram, by host and number; fragments counts the datagrams.
	parts     map[netcachePart][]byte
	fragments uint16
}

// netcacheClient does one operation after the other.
type netcacheClient struct {
	o     *netcacheOracle
	n     int // cn1 is client 1
	zipf  *kv.Zipf
	left  int // operations
	id    uint16
	count int // operations begun
	// begun is, by the number of a request, how many operations were begun with the newest one that has it.
	begun  map[uint16]int
	op     netcacheOp
	open   bool
	sent   int // how often the present request was sent
	failed int // operations that have no answer
	tags   []uint16
	// last is when a request with each of the client's numbers was sent last.
	last []clock.Time
}

// netcacheOp is an operation: a request, and what it is in the history.
type netcacheOp struct {
	text  string
	write uint64 // the number of the write; 0 for a deletion, and for a GET
	get   bool
	keys  []int
	ids   []history.ID
}

const (
	netcachePort    = 11211
	netcacheFrom    = 40000
	netcacheTries   = 8
	netcacheTimeout = 300 * time.Microsecond
	// netcacheKept is how long the switch may keep a request, and netcacheMargin how long links and their queues may
	// hold up a datagram. A client does not use a number again before.
	netcacheKept   = 2 * time.Millisecond
	netcacheMargin = time.Millisecond
)

func (r *netcacheRun) newOracle() *netcacheOracle {
	o := &netcacheOracle{run: r, draw: newDraw(r.env.draw.Uint64()), done: make(map[uint64]bool), parts: make(map[netcachePart][]byte)}
	for i := range r.plan.keys {
		o.log.Add(netcacheName(i), 0)
		o.items = append(o.items, 0)
	}
	for n := 1; n < netcacheHosts; n++ {
		c := &netcacheClient{o: o, n: n, left: r.plan.ops, zipf: kv.NewZipf(uint64(r.plan.keys), r.plan.theta), last: make([]clock.Time, r.plan.ask.numbers), begun: make(map[uint16]int)}
		if r.plan.ask.tags {
			c.tags = one(o.draw, nil, []uint16{0x8100}, []uint16{0x88a8, 0x8100}, []uint16{0x8100, 0x8100})
		}
		o.clients = append(o.clients, c)
	}
	return o
}

func netcacheName(i int) string { return fmt.Sprintf("key-%d", i) }

func (o *netcacheOracle) String() string {
	failed := 0
	for _, c := range o.clients {
		failed += c.failed
	}
	return fmt.Sprintf("%d operations, %d answered, %d given up, %d writes executed again", o.log.Ops, o.answers, failed, o.again)
}

func (o *netcacheOracle) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

func (o *netcacheOracle) ended() bool {
	return !slices.ContainsFunc(o.clients, func(c *netcacheClient) bool { return c.left > 0 || c.open })
}

func (o *netcacheOracle) begin() {
	o.began = o.run.env.rack.Now()
	for _, c := range o.clients {
		c.later(o.draw.span(0, o.run.plan.think), c.next)
	}
}

func (c *netcacheClient) later(d time.Duration, f func()) {
	rack := c.o.run.env.rack
	rack.At(rack.Now().Add(d), f)
}

// next begins the client's next operation.
func (c *netcacheClient) next() {
	if c.left == 0 || !c.number() {
		return
	}
	c.left--
	c.count++
	c.begun[c.id] = c.count
	c.open, c.sent = true, 0
	c.op = c.o.drawOp(c.zipf)
	for _, k := range c.op.keys {
		op := history.Op{Kind: history.Write, Value: c.op.write}
		if c.op.get {
			op = history.Op{Kind: history.Read}
		}
		c.op.ids = append(c.op.ids, c.o.log.Invoke(k, c.n, op))
	}
	c.send(c.id)
}

// kept returns how long after a request was sent datagrams may have its number.
func (o *netcacheOracle) kept() time.Duration {
	return 4*o.run.plan.hop.late + netcacheKept + netcacheMargin
}

// number chooses the number of the next request. If the client has used it before and datagrams may still have it, the
// result is false, and the client goes on later.
func (c *netcacheClient) number() bool {
	n := len(c.last)
	if n == 0 {
		c.id = uint16(c.count + 1)
		return true
	}
	at, now := c.count%n, c.o.run.env.rack.Now()
	if free := c.last[at].Add(c.o.kept()); c.count >= n && now < free {
		c.later(free.Sub(now), c.next)
		return false
	}
	c.id = uint16(at + 1)
	return true
}

// drawOp draws an operation.
func (o *netcacheOracle) drawOp(z *kv.Zipf) (op netcacheOp) {
	d, p := o.draw, o.run.plan
	key := func() int {
		k := int(z.Next(d.Rand))
		if p.ask.moves > 0 { // others are hot then
			k += 3 * int(o.run.env.rack.Now().Sub(o.began)/p.ask.moves)
		}
		return k % p.keys
	}
	op.keys = []int{key()}
	name := netcacheName(op.keys[0])
	switch {
	case d.chance(p.writes):
		if d.chance(0.2) {
			op.text = "delete " + name + "\r\n"
			break
		}
		o.number++
		op.write = o.number
		data := o.data(op.write)
		op.text = fmt.Sprintf("set %s %d 0 %d\r\n%s\r\n", name, op.write%3, len(data), data)
	case d.chance(0.05):
		op.get, op.text = true, "gets "+name+"\r\n"
	case d.chance(0.01):
		if other := key(); other != op.keys[0] {
			op.keys = append(op.keys, other)
			name += " " + netcacheName(other)
		}
		op.get, op.text = true, "get "+name+"\r\n"
	default:
		op.get, op.text = true, "get "+name+"\r\n"
	}
	return op
}

// data returns the value of a write: its number, and bytes of which the number decides.
func (o *netcacheOracle) data(number uint64) []byte {
	b := strconv.AppendUint(nil, number, 10)
	for i := range number * 37 % uint64(o.run.plan.longest+1) {
		b = append(b, "-\r\nEND"[(i+number)%6])
	}
	return b
}

// send sends the present request, and again if there is no answer.
func (c *netcacheClient) send(id uint16) {
	if !c.open || c.id != id {
		return
	}
	if c.sent++; c.sent > netcacheTries {
		c.open = false
		c.failed++
		c.later(0, c.next)
		return
	}
	text := c.op.text
	if len(c.last) > 0 {
		c.last[id-1] = c.o.run.env.rack.Now()
	}
	c.o.hop(func() { c.o.transmit(c.n, 0, netcacheFrom+uint16(c.n), id, text) })
	c.later(netcacheTimeout, func() { c.send(id) })
}

// hop does f after some time, or not at all, or twice.
func (o *netcacheOracle) hop(f func()) {
	d, p, rack := o.draw, o.run.plan, o.run.env.rack
	for n := 1; n > 0; n-- {
		if d.chance(p.hop.twice / 2) {
			n++
		}
		if !d.chance(p.hop.loss) {
			rack.At(rack.Now().Add(d.span(0, p.hop.late)), f)
		}
	}
}

// serve executes a request at the server, and answers it to the port and with the number that it has, which may be the
// switch's.
func (o *netcacheOracle) serve(client int, port, id uint16, text string) {
	if o.down {
		return
	}
	words := strings.Fields(text)
	answer := ""
	switch words[0] {
	case "get", "gets":
		for _, w := range words[1:] {
			if n := o.items[netcacheKey(w)]; n != 0 {
				unique := ""
				if words[0] == "gets" {
					unique = fmt.Sprintf(" %d", n)
				}
				data := o.data(n)
				answer += fmt.Sprintf("VALUE %s %d %d%s\r\n%s\r\n", w, n%3, len(data), unique, data)
			}
		}
		answer += "END\r\n"
	case "delete":
		if answer = "DELETED\r\n"; o.items[netcacheKey(words[1])] == 0 {
			answer = "NOT_FOUND\r\n"
		}
		o.execute(netcacheKey(words[1]), 0, uint64(client)<<48|1<<40|uint64(o.clients[client-1].begun[id]))
	case "set":
		_, data, _ := strings.Cut(text, "\r\n")
		n := numberAt(data)
		o.execute(netcacheKey(words[1]), n, n)
		answer = "STORED\r\n"
	}
	o.hop(func() { o.transmit(0, client, port, id, answer) })
}

// execute sets a key to the value of a write. tag tells writes apart: one that comes again is another write, which no
// client has asked for and which gets no answer.
func (o *netcacheOracle) execute(key int, number, tag uint64) {
	if o.done[tag] {
		o.again++
		o.log.Invoke(key, -1, history.Op{Kind: history.Write, Value: number})
	}
	o.done[tag] = true
	o.items[key] = number
}

// crash ends the server for some time, and loses all its items.
func (o *netcacheOracle) crash(down time.Duration) {
	rack := o.run.env.rack
	o.down = true
	rack.At(rack.Now().Add(down), func() { o.down = false })
	for k, n := range o.items {
		if n != 0 {
			o.log.Invoke(k, -1, history.Op{Kind: history.Write})
			o.items[k] = 0
		}
	}
}

func netcacheKey(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "key-")) // the oracle has made it
	return n
}

// numberAt returns the number at the beginning of a value.
func numberAt(data string) uint64 {
	end := strings.IndexFunc(data, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(data)
	}
	n, _ := strconv.ParseUint(data[:end], 10, 64) // the oracle has made it
	return n
}

// answered handles an answer that has come to the client.
func (c *netcacheClient) answered(id uint16, text string) {
	if n := len(c.last); n > 0 && c.o.run.env.rack.Now() > c.last[id-1].Add(c.o.kept()) {
		c.o.fail("client %d gets an answer with number %d %v after it has used the number", c.n, id, c.o.run.env.rack.Now().Sub(c.last[id-1]))
		return
	}
	if !c.open || c.id != id {
		return // it comes late, or again
	}
	found := make(map[int]uint64)
	if c.op.get {
		rest := text
		for strings.HasPrefix(rest, "VALUE ") {
			line, data, _ := strings.Cut(rest, "\r\n")
			f := strings.Fields(line)
			n := numberAt(data)
			want := c.o.data(n)
			if len(f) < 4 || !slices.Contains(c.op.keys, netcacheKey(f[1])) || f[2] != fmt.Sprint(n%3) || f[3] != fmt.Sprint(len(want)) || !strings.HasPrefix(data, string(want)+"\r\n") || n == 0 {
				c.o.fail("client %d has asked %q, and gets %q", c.n, c.op.text, text)
				return
			}
			found[netcacheKey(f[1])] = n
			rest = data[len(want)+2:]
		}
		if rest != "END\r\n" {
			c.o.fail("client %d has asked %q, and gets %q", c.n, c.op.text, text)
			return
		}
	} else if text != "STORED\r\n" && text != "DELETED\r\n" && text != "NOT_FOUND\r\n" {
		c.o.fail("client %d has asked %q, and gets %q", c.n, c.op.text, text)
		return
	}
	for i, k := range c.op.keys {
		c.o.log.Return(c.op.ids[i], found[k])
	}
	c.o.answers++
	c.open = false
	c.later(c.o.draw.span(0, c.o.run.plan.think), c.next)
}
