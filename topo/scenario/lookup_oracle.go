package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// lookupOracle makes the sender's frames and sees what arrives at every host. It uses no state of the
// switch, and reads the servers' memory to learn which flows have an entry. Flow i has source port
// lookupPort + i; the payload of a frame is magic 4 | flow 2 | number 4 | length 2 | bytes that depend
// on flow and number.
type lookupOracle struct {
	run     *lookupRun
	numbers []uint32 // number of the next frame of a flow to send
	last    []int64  // number of the last frame of a flow that has arrived
	table   map[int]bool
	// found and missed count the frames that have arrived, of flows with and without an entry.
	found, missed uint64
	err           error
}

const (
	lookupPort  = 10000
	lookupTo    = 7000
	lookupMagic = 0x4c4f4f4b
	lookupHead  = 12
	lookupNAT   = 9000
)

func newLookupOracle(r *lookupRun) *lookupOracle {
	o := &lookupOracle{run: r, numbers: make([]uint32, r.plan.flows), last: make([]int64, r.plan.flows), table: make(map[int]bool)}
	for i := range o.last {
		o.last[i] = -1
	}
	return o
}

func (o *lookupOracle) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *lookupOracle) arrived() int { return int(o.found + o.missed) }

// lookupKinds are what entries do; the last kind is no entry.
const lookupKinds = 6

// host returns the address of a host.
func (o *lookupOracle) host(i int) netip.Addr { return o.run.env.addrOf(fmt.Sprintf("cn%d", i)) }

// key returns the text of a flow's key.
func (o *lookupOracle) key(flow int) string {
	return fmt.Sprintf("from=%v to=%v proto=udp", netip.AddrPortFrom(o.host(0), uint16(lookupPort+flow)), netip.AddrPortFrom(o.host(1), lookupTo))
}

// entries returns the entries to load. Flow i has one unless i modulo lookupKinds is the last kind.
func (o *lookupOracle) entries() (list []string) {
	for i := range o.run.plan.flows {
		if a := o.action(i); a != "" {
			list = append(list, o.key(i)+" "+a)
		}
	}
	return list
}

func (o *lookupOracle) action(flow int) string {
	switch flow % lookupKinds {
	case 0:
		return fmt.Sprintf("dscp=%d", flow%64)
	case 1:
		return fmt.Sprintf("dst=%v dscp=9", netip.AddrPortFrom(o.host(2), uint16(lookupNAT+flow)))
	case 2:
		return fmt.Sprintf("src=%v", netip.AddrPortFrom(o.host(3), uint16(lookupNAT+flow)))
	case 3:
		return fmt.Sprintf("egress=%v", o.host(3))
	case 4:
		return "drop"
	}
	return ""
}

// other returns the entry of a flow that sends nothing.
func (o *lookupOracle) other(n int) string { return o.key(o.run.plan.flows+n) + " drop" }

// readTable learns from the servers' memory which flows have an entry. The source port of an entry
// is at offset 36 of its slot.
func (o *lookupOracle) readTable() {
	slots := o.run.plan.capacity + 7
	for _, m := range o.run.memory[1:] {
		for i := range slots {
			s := m[lookupBase+64*i:][:64]
			if flow := int(binary.BigEndian.Uint16(s[36:])) - lookupPort; s[1]&1 != 0 && flow < o.run.plan.flows {
				o.table[flow] = true
			}
		}
	}
	if n := o.run.count("written"); n != uint64(len(o.table)) && o.run.plan.mode == modeHardened {
		o.fail(fmt.Errorf("%d entries were written, and %d are in the table", n, len(o.table)))
	}
}

// next makes the next frame of a flow.
func (o *lookupOracle) next(d *draw, flow int) []byte {
	n := o.numbers[flow]
	o.numbers[flow]++
	size := max(lookupHead, d.between(o.run.plan.least, o.run.plan.most))
	return o.build(flow, o.payload(flow, n, size), false)
}

func (o *lookupOracle) payload(flow int, n uint32, size int) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(be.AppendUint16(be.AppendUint32(nil, lookupMagic), uint16(flow)), n)
	b = be.AppendUint16(b, uint16(size))
	for i := len(b); i < size; i++ {
		b = append(b, byte(i*7+int(n)*13+flow*29))
	}
	return b
}

// build makes a frame of a flow as cn0 sends it, or as it must arrive. It returns nil if the frame
// must not arrive.
func (o *lookupOracle) build(flow int, payload []byte, arriving bool) []byte {
	rack := o.run.env.rack
	src, dst := netip.AddrPortFrom(o.host(0), uint16(lookupPort+flow)), netip.AddrPortFrom(o.host(1), lookupTo)
	to, class := "cn1", uint8(1) // ECN must stay
	switch {
	case !arriving:
	case !o.table[flow]:
		if o.run.plan.drop {
			return nil
		}
	default:
		switch flow % lookupKinds {
		case 0:
			class |= uint8(flow%64) << 2
		case 1:
			to, class, dst = "cn2", class|9<<2, netip.AddrPortFrom(o.host(2), uint16(lookupNAT+flow))
		case 2:
			src = netip.AddrPortFrom(o.host(3), uint16(lookupNAT+flow))
		case 4:
			return nil
		}
	}
	eth := wire.Ethernet{Dst: rack.Host(to).Spec.MAC, Src: rack.Host("cn0").Spec.MAC}
	b := []byte(nil)
	be := binary.BigEndian
	n := 8 + len(payload)
	if src.Addr().Is4() {
		eth.Type = wire.EtherTypeIPv4
		ip := wire.IPv4{TOS: class, TTL: 64, Protocol: 17, Src: src.Addr().As4(), Dst: dst.Addr().As4()}
		b = ipv4Head(eth.AppendTo(nil), &ip, n)
	} else {
		eth.Type = wire.EtherTypeIPv6
		ip := wire.IPv6{TrafficClass: class, HopLimit: 64, NextHeader: 17, Src: src.Addr().As16(), Dst: dst.Addr().As16()}
		b = ip.AppendTo(eth.AppendTo(nil), n)
	}
	l4 := len(b)
	b = be.AppendUint16(be.AppendUint16(be.AppendUint16(be.AppendUint16(b, src.Port()), dst.Port()), uint16(n)), 0)
	b = append(b, payload...)
	sum := onesSum(b[l4:]) + onesSum(src.Addr().AsSlice()) + onesSum(dst.Addr().AsSlice()) + 17 + uint32(n)
	c := ^foldSum(sum)
	if c == 0 {
		c = 0xffff
	}
	be.PutUint16(b[l4+6:], c)
	return b
}

// ipv4Head appends an IPv4 header with its checksum.
func ipv4Head(b []byte, ip *wire.IPv4, n int) []byte {
	at := len(b)
	b = append(b, 0x45, ip.TOS, byte((20+n)>>8), byte(20+n), 0, 0, 0, 0, ip.TTL, ip.Protocol, 0, 0)
	b = append(append(b, ip.Src[:]...), ip.Dst[:]...)
	binary.BigEndian.PutUint16(b[at+10:], ^foldSum(onesSum(b[at:])))
	return b
}

func onesSum(b []byte) (s uint32) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func foldSum(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// wrap puts the oracle before the hosts.
func (o *lookupOracle) wrap(name string, n sim.Node) sim.Node {
	if name == spec.SwitchName {
		return n
	}
	return &lookupPoint{Node: n, name: name, oracle: o}
}

// lookupPoint shows the frames that arrive at a host.
type lookupPoint struct {
	sim.Node
	name   string
	oracle *lookupOracle
}

func (p *lookupPoint) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	b := f.Data
	head := 14 + 20 + 8
	if len(b) > 14 && b[14]>>4 == 6 {
		head += 20
	}
	if len(b) >= head+lookupHead && binary.BigEndian.Uint32(b[head:]) == lookupMagic {
		p.oracle.see(p.name, b, b[head:])
		return
	}
	p.Node.Frame(now, port, f, out)
}

// see checks a frame that has arrived at a host: that it is there, its headers and bytes, and that it
// is behind all earlier ones of its flow.
func (o *lookupOracle) see(host string, b, payload []byte) {
	be := binary.BigEndian
	flow, n, size := int(be.Uint16(payload[4:])), be.Uint32(payload[6:]), int(be.Uint16(payload[10:]))
	if flow >= o.run.plan.flows || size < lookupHead || size > o.run.plan.most+lookupHead {
		o.fail(fmt.Errorf("a frame that no host has sent: %x", payload[:lookupHead]))
		return
	}
	to := "cn1"
	if o.table[flow] {
		o.found++
		switch flow % lookupKinds {
		case 1:
			to = "cn2"
		case 3:
			to = "cn3"
		}
	} else {
		o.missed++
	}
	want := o.build(flow, o.payload(flow, n, size), true)
	switch {
	case want == nil:
		o.fail(fmt.Errorf("frame %d of flow %d arrives, though it is to be dropped", n, flow))
	case host != to:
		o.fail(fmt.Errorf("frame %d of flow %d arrives at %s, not at %s", n, flow, host, to))
	case !bytes.Equal(b, want):
		o.fail(fmt.Errorf("frame %d of flow %d (%s) is\n%x, not\n%x", n, flow, o.action(flow), b, want))
	case int64(n) == o.last[flow]:
		o.fail(fmt.Errorf("frame %d of flow %d arrives twice", n, flow))
	case int64(n) < o.last[flow]:
		o.fail(fmt.Errorf("frame %d of flow %d comes behind frame %d", n, flow, o.last[flow]))
	}
	o.last[flow] = max(o.last[flow], int64(n))
}
