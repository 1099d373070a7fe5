package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
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
}

// netcacheClient does one operation after the other.
type netcacheClient struct {
	o      *netcacheOracle
	n      int // cn1 is client 1
	zipf   *kv.Zipf
	left   int // operations
	id     uint16
	op     netcacheOp
	open   bool
	sent   int // how often the present request was sent
	failed int // operations that have no answer
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
)

func (r *netcacheRun) newOracle() *netcacheOracle {
	o := &netcacheOracle{run: r, draw: newDraw(r.env.draw.Uint64()), done: make(map[uint64]bool)}
	for i := range r.plan.keys {
		o.log.Add(netcacheName(i), 0)
		o.items = append(o.items, 0)
	}
	for n := 1; n < netcacheHosts; n++ {
		o.clients = append(o.clients, &netcacheClient{o: o, n: n, left: r.plan.ops, zipf: kv.NewZipf(uint64(r.plan.keys), r.plan.theta)})
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
	if c.left == 0 {
		return
	}
	c.left--
	c.id++
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

// drawOp draws an operation.
func (o *netcacheOracle) drawOp(z *kv.Zipf) (op netcacheOp) {
	d := o.draw
	key := func() int { return int(z.Next(d.Rand)) }
	op.keys = []int{key()}
	name := netcacheName(op.keys[0])
	switch {
	case d.chance(o.run.plan.writes):
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
	c.o.hop(func() { c.o.transmit(c.n, 0, netcacheFrom+uint16(c.n), id, text) })
	c.later(netcacheTimeout, func() { c.send(id) })
}

// hop does f after some time, or not at all, or twice.
func (o *netcacheOracle) hop(f func()) {
	d, p, rack := o.draw, o.run.plan, o.run.env.rack
	for n := 1; n > 0; n-- {
		if d.chance(p.twice / 2) {
			n++
		}
		if !d.chance(p.loss) {
			rack.At(rack.Now().Add(d.span(0, p.late)), f)
		}
	}
}

// transmit puts a datagram between host cn<from> and host cn<to> on the link of the first one. port is that of the end
// that is not the server, which is cn0.
func (o *netcacheOracle) transmit(from, to int, port, id uint16, text string) {
	rack, be := o.run.env.rack, binary.BigEndian
	h := rack.Host(fmt.Sprintf("cn%d", from))
	src, dst := h.Spec, rack.Host(fmt.Sprintf("cn%d", to)).Spec
	ports := [2]uint16{port, netcachePort}
	if from == 0 {
		ports = [2]uint16{netcachePort, port}
	}
	n := 16 + len(text)
	l4 := be.AppendUint16(be.AppendUint16(be.AppendUint16(nil, ports[0]), ports[1]), uint16(n))
	l4 = append(be.AppendUint16(append(l4, 0, 0), id), 0, 0, 0, 1, 0, 0)
	l4 = append(l4, text...)
	eth := wire.Ethernet{Dst: dst.MAC, Src: src.MAC, Type: wire.EtherTypeIPv4}
	var b, pseudo []byte
	if o.run.env.v6 {
		eth.Type = wire.EtherTypeIPv6
		a, z := src.IPv6.As16(), dst.IPv6.As16()
		b = append(eth.AppendTo(nil), 0x60, 0, 0, 0, byte(n>>8), byte(n), 17, 64)
		b = append(append(b, a[:]...), z[:]...)
		pseudo = append(a[:], z[:]...)
	} else {
		ip := wire.IPv4{TTL: 64, Protocol: 17, Src: src.IPv4.As4(), Dst: dst.IPv4.As4()}
		b = ip.AppendTo(eth.AppendTo(nil), n)
		pseudo = append(ip.Src[:], ip.Dst[:]...)
	}
	sum := ^foldSum(onesSum(l4) + onesSum(pseudo) + 17 + uint32(n))
	if sum == 0 {
		sum = 0xffff
	}
	be.PutUint16(l4[6:], sum)
	h.Inject(fault.Up, append(b, l4...), nil)
}

// wrap puts a tap in front of each host, which gives datagrams of memcached's port to the oracle.
func (o *netcacheOracle) wrap(name string, n simnet.Node) simnet.Node {
	if name == rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		b := f.Data
		ip, pseudo := 14+20, 8
		if len(b) > 14 && b[14]>>4 == 6 {
			ip, pseudo = 14+40, 32
		}
		if len(b) < ip+16 || b[23] != 17 && b[20] != 17 {
			return true
		}
		l4 := b[ip:]
		from, to := binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		if from != netcachePort && to != netcachePort {
			return true
		}
		if s := foldSum(onesSum(l4) + onesSum(b[ip-pseudo:ip]) + 17 + uint32(len(l4))); s != 0xffff || int(binary.BigEndian.Uint16(l4[4:])) != len(l4) {
			o.fail("a datagram with a wrong checksum or length at %s: %x", name, b)
		}
		id, text, client := binary.BigEndian.Uint16(l4[8:]), string(l4[16:]), b[ip-pseudo:ip-pseudo/2]
		if !bytes.Equal(l4[10:16], []byte{0, 0, 0, 1, 0, 0}) {
			o.fail("a datagram with the head %x at %s", l4[8:16], name)
		}
		if name == "cn0" {
			who := o.clientOf(client)
			o.hop(func() { o.serve(who, from, id, text) })
		} else if who := int(name[2] - '0'); strings.HasPrefix(name, "cn") && to == netcacheFrom+uint16(who) {
			o.hop(func() { o.clients[who-1].answered(id, text) })
		}
		return false
	}}
}

// clientOf returns the number of the client with an address.
func (o *netcacheOracle) clientOf(addr []byte) int {
	for n := 1; n < netcacheHosts; n++ {
		s := o.run.env.rack.Host(fmt.Sprintf("cn%d", n)).Spec
		if a := s.IPv4.As4(); bytes.Equal(a[:], addr) || bytes.Equal(s.IPv6.AsSlice(), addr) {
			return n
		}
	}
	return 0
}

// serve executes a request at the server, and answers it to the port and with the number that it has, which may be the
// switch's.
func (o *netcacheOracle) serve(client int, port, id uint16, text string) {
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
		o.execute(netcacheKey(words[1]), 0, uint64(client)<<48|1<<40|uint64(id))
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

// crash loses all items of the server.
func (o *netcacheOracle) crash() {
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
