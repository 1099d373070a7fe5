package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// balanceOracle makes the packets of connections and checks what arrives: all packets of a connection at
// one host, which was in the pool at some time since the connection began, each once, with all bytes;
// and its answers with the virtual address as their source. It uses no state of the switch. A payload
// is: magic number, 4 bytes | connection, 2 | number of the packet, 4.
type balanceOracle struct {
	run         *balanceRun
	connections []*balanced
	arrived     uint64 // packets that have arrived at hosts
	answers     uint64 // answers that have arrived at cn0
	err         error  // the first error
}

// balanced is a connection.
type balanced struct {
	proto   byte
	allowed []string // hosts that were in the pool since its first packet; empty before
	host    string   // to which it goes; "" as long as no packet has arrived
	open    bool     // cn0 has an answer
	sent    int      // packets that were sent, the ones that open it included
	data    int      // of these, packets behind the answer to the first one
	last    int64    // number of the last packet that has arrived
	ended   bool     // cn0 has sent its last packet
}

const (
	balancePort  = 80 // at the virtual address
	balanceFrom  = 20000
	balanceMagic = 0x42414c41
	balanceHead  = 10
)

func (r *balanceRun) newOracle() *balanceOracle {
	o := &balanceOracle{run: r}
	for range r.plan.connections {
		c := &balanced{proto: 6, last: -1}
		if r.env.draw.chance(r.plan.udp) {
			c.proto = 17
		}
		o.connections = append(o.connections, c)
	}
	return o
}

func (o *balanceOracle) String() string {
	open, ended := 0, 0
	for _, c := range o.connections {
		if c.open {
			open++
		}
		if c.ended {
			ended++
		}
	}
	return fmt.Sprintf("%d connections, %d were open, %d ended, %d packets and %d answers arrived", len(o.connections), open, ended, o.arrived, o.answers)
}

func (o *balanceOracle) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// allow notes a new pool.
func (o *balanceOracle) allow(pool []string) {
	for _, c := range o.connections {
		if len(c.allowed) > 0 && c.host == "" {
			c.allowed = append(c.allowed, pool...)
		}
	}
}

func (o *balanceOracle) ended() bool {
	return !slices.ContainsFunc(o.connections, func(c *balanced) bool { return !c.ended })
}

// Flags of TCP.
const (
	tcpFIN = 1
	tcpSYN = 2
	tcpACK = 16
)

// next makes the next packet of a random connection: one that opens it until cn0 has an answer, then
// data, then the last one. It returns nil if the connection has ended.
func (o *balanceOracle) next(d *draw) []byte {
	i := d.IntN(len(o.connections))
	c := o.connections[i]
	if c.ended {
		return nil
	}
	if len(c.allowed) == 0 {
		c.allowed = slices.Clone(o.run.pool)
	}
	if c.open {
		c.data++
	}
	if c.data > o.run.plan.data {
		c.ended = true
	}
	b := o.build("cn0", balanceVIP, i, uint32(c.sent), o.flags(c, c.sent))
	c.sent++
	return b
}

// flags returns the flags of packet n of a connection, the last one that was sent.
func (o *balanceOracle) flags(c *balanced, n int) byte {
	switch {
	case c.data == 0:
		return tcpSYN
	case c.ended && n >= c.sent-1:
		return tcpFIN | tcpACK
	}
	return tcpACK
}

// build makes a packet of connection i from one host to another. The port balancePort is that of the end
// that is not cn0.
func (o *balanceOracle) build(from, to string, i int, n uint32, flags byte) []byte {
	rack, be := o.run.env.rack, binary.BigEndian
	src, dst := rack.Host(from).Spec, rack.Host(to).Spec
	ports := [2]uint16{uint16(balanceFrom + i), balancePort}
	if from != "cn0" {
		ports[0], ports[1] = ports[1], ports[0]
	}
	c := o.connections[i]
	payload := be.AppendUint32(be.AppendUint16(be.AppendUint32(nil, balanceMagic), uint16(i)), n)
	for j := range i*37%300 + int(n)%50 {
		payload = append(payload, byte(j*5+i+int(n)))
	}
	l4 := be.AppendUint16(be.AppendUint16(nil, ports[0]), ports[1])
	sumAt := 6
	if c.proto == 6 {
		sumAt = 16
		l4 = be.AppendUint32(be.AppendUint32(l4, n), 77)
		l4 = append(l4, 5<<4, flags, 1, 0, 0, 0, 0, 0)
	} else {
		l4 = be.AppendUint16(be.AppendUint16(l4, uint16(8+len(payload))), 0)
	}
	l4 = append(l4, payload...)
	ip := wire.IPv4{TTL: 64, Protocol: c.proto, Src: src.IPv4.As4(), Dst: dst.IPv4.As4()}
	sum := ^foldSum(onesSum(l4) + onesSum(ip.Src[:]) + onesSum(ip.Dst[:]) + uint32(c.proto) + uint32(len(l4)))
	if sum == 0 && c.proto == 17 {
		sum = 0xffff
	}
	be.PutUint16(l4[sumAt:], sum)
	eth := wire.Ethernet{Dst: dst.MAC, Src: rack.Host(from).Spec.MAC, Type: wire.EtherTypeIPv4}
	return append(ip.AppendTo(eth.AppendTo(nil), len(l4)), l4...)
}

// wrap puts a tap in front of each host, which gives the packets of connections to the oracle.
func (o *balanceOracle) wrap(name string, n simnet.Node) simnet.Node {
	if name == rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		b := f.Data
		if len(b) < 14+20+8+balanceHead || b[23] != 6 && b[23] != 17 {
			return true
		}
		head := 14 + 20 + 8
		if b[23] == 6 {
			head += 12
		}
		if len(b) < head+balanceHead || binary.BigEndian.Uint32(b[head:]) != balanceMagic {
			return true
		}
		i, m := int(binary.BigEndian.Uint16(b[head+4:])), binary.BigEndian.Uint32(b[head+6:])
		switch {
		case i >= len(o.connections):
			o.fail("a packet of no connection at %s: %x", name, b)
		case name == "cn0":
			o.answered(i, m, b)
		default:
			o.see(name, i, m, b)
		}
		return false
	}}
}

// see checks a packet that has arrived at a host, which answers it.
func (o *balanceOracle) see(host string, i int, n uint32, b []byte) {
	c := o.connections[i]
	o.arrived++
	if int(n) >= c.sent {
		o.fail("packet %d of connection %d was not sent", n, i)
		return
	}
	flags := byte(0)
	if c.proto == 6 {
		flags = b[14+20+13]
	}
	want := o.build("cn0", host, i, n, flags)
	switch {
	case !bytes.Equal(b, want):
		o.fail("packet %d of connection %d arrives at %s as\n%x, not\n%x", n, i, host, b, want)
	case c.host == "" && !slices.Contains(c.allowed, host):
		o.fail("connection %d goes to %s, which was not in the pool", i, host)
	case c.host != "" && c.host != host:
		o.fail("connection %d goes to %s, and goes on to %s", i, c.host, host)
	case int64(n) == c.last:
		o.fail("packet %d of connection %d arrives twice", n, i)
	case int64(n) < c.last:
		o.fail("packet %d of connection %d comes behind packet %d", n, i, c.last)
	}
	c.host, c.last = host, int64(n)
	o.run.env.rack.Host(host).Inject(fault.Up, o.build(host, "cn0", i, n, tcpACK), nil)
}

// answered checks an answer that has arrived at cn0. Its source is the virtual address, and its Ethernet
// source the host that has answered.
func (o *balanceOracle) answered(i int, n uint32, b []byte) {
	o.answers++
	c := o.connections[i]
	want := o.build(balanceVIP, "cn0", i, n, tcpACK)
	if c.host != "" {
		mac := o.run.env.rack.Host(c.host).Spec.MAC
		copy(want[6:], mac[:])
	}
	if !bytes.Equal(b, want) {
		o.fail("an answer of connection %d arrives as\n%x, not\n%x", i, b, want)
	}
	c.open = true
}
