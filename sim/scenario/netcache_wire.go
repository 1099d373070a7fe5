package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// netcachePart names a datagram that comes in two fragments to a host.
type netcachePart struct {
	host   string
	number uint16
}

// netcacheFragment is the header of a fragment's extension of IPv6, in bytes, and netcacheMF says in that of IPv4 that
// more fragments follow.
const (
	netcacheFragment = 8
	netcacheMF       = 0x2000
)

// transmit puts a datagram between host cn<from> and host cn<to> on the link of the first one, at random in two
// fragments, in any order. port is that of the end that is not the server, which is cn0.
func (o *netcacheOracle) transmit(from, to int, port, id uint16, text string) {
	be := binary.BigEndian
	ports := [2]uint16{port, netcachePort}
	if from == 0 {
		ports = [2]uint16{netcachePort, port}
	}
	n := 16 + len(text)
	l4 := be.AppendUint16(be.AppendUint16(be.AppendUint16(nil, ports[0]), ports[1]), uint16(n))
	l4 = append(be.AppendUint16(append(l4, 0, 0), id), 0, 0, 0, 1, 0, 0)
	l4 = append(l4, text...)
	rack := o.run.env.rack
	h, dst := rack.Host(fmt.Sprintf("cn%d", from)), rack.Host(fmt.Sprintf("cn%d", to)).Spec
	src := h.Spec
	pseudo := append(src.IPv4.AsSlice(), dst.IPv4.AsSlice()...)
	if o.run.env.v6 {
		pseudo = append(src.IPv6.AsSlice(), dst.IPv6.AsSlice()...)
	}
	sum := ^foldSum(onesSum(l4) + onesSum(pseudo) + 17 + uint32(n))
	if sum == 0 {
		sum = 0xffff
	}
	be.PutUint16(l4[6:], sum)
	eth := append(bytes.Clone(dst.MAC[:]), src.MAC[:]...)
	for i, t := range o.clients[max(from, to)-1].tags {
		eth = be.AppendUint16(be.AppendUint16(eth, t), uint16(max(from, to)*16+i))
	}
	if !o.draw.chance(o.run.plan.fragments) {
		h.Inject(fault.Up, o.packet(eth, pseudo, l4, 0, false), nil)
		return
	}
	o.fragments++
	at := 8 * o.draw.between(1, (n-1)/8)
	list := [][]byte{o.packet(eth, pseudo, l4[:at], 0, true), o.packet(eth, pseudo, l4[at:], at, false)}
	if o.draw.chance(0.3) {
		slices.Reverse(list)
	}
	for _, b := range list {
		h.Inject(fault.Up, b, nil)
	}
}

// packet returns the frame of a part of a datagram that begins at offset at. more is true if another part follows.
func (o *netcacheOracle) packet(eth, ends, part []byte, at int, more bool) []byte {
	be := binary.BigEndian
	b := bytes.Clone(eth)
	frag := uint16(at)
	if o.run.env.v6 {
		next, n := byte(17), len(part)
		if at > 0 || more {
			next, n = 44, n+netcacheFragment
		}
		b = append(be.AppendUint16(b, wire.EtherTypeIPv6), 0x60, 0, 0, 0, byte(n>>8), byte(n), next, 64)
		b = append(b, ends...)
		if next == 44 {
			if more {
				frag |= 1
			}
			b = be.AppendUint16(append(be.AppendUint16(append(b, 17, 0), frag), 0, 0), o.fragments)
		}
		return append(b, part...)
	}
	ip := wire.IPv4{TTL: 64, Protocol: 17, Src: [4]byte(ends[:4]), Dst: [4]byte(ends[4:])}
	b = be.AppendUint16(b, wire.EtherTypeIPv4)
	head := len(b)
	b = ip.AppendTo(b, len(part))
	if frag /= 8; more {
		frag |= netcacheMF
	}
	if frag > 0 {
		be.PutUint16(b[head+4:], o.fragments)
		be.PutUint16(b[head+6:], frag)
		be.PutUint16(b[head+10:], 0)
		be.PutUint16(b[head+10:], ^foldSum(onesSum(b[head:])))
	}
	return append(b, part...)
}

// datagram returns the addresses and the bytes of the datagram in a frame that has come to a host; nil if it has none.
// more is true if the frame has one of two fragments, and the other one has not come.
func (o *netcacheOracle) datagram(host string, b []byte) (ends, l4 []byte, more bool) {
	be := binary.BigEndian
	at := 12
	for len(b) > at+4 && (be.Uint16(b[at:]) == wire.EtherTypeVLAN || be.Uint16(b[at:]) == 0x88a8) {
		at += 4
	}
	at += 2
	var number, frag uint16 // the latter as in IPv6
	switch {
	case len(b) > at+20 && b[at]>>4 == 4 && b[at+9] == 17:
		ends, l4, number = b[at+12:at+20], b[at+20:], be.Uint16(b[at+4:])
		if f := be.Uint16(b[at+6:]); f&(netcacheMF|0x1fff) != 0 {
			frag = f<<3 | f>>13&1
		}
	case len(b) > at+40 && b[at]>>4 == 6 && b[at+6] == 17:
		ends, l4 = b[at+8:at+40], b[at+40:]
	case len(b) > at+40+netcacheFragment && b[at]>>4 == 6 && b[at+6] == 44:
		ends, l4 = b[at+8:at+40], b[at+40+netcacheFragment:]
		frag, number = be.Uint16(b[at+42:]), be.Uint16(b[at+46:])
	default:
		return nil, nil, false
	}
	if frag == 0 {
		return ends, l4, false
	}
	k := netcachePart{host, number}
	other := o.parts[k]
	switch {
	case other == nil || len(other) > 0 && other[0] == byte(frag&1): // it comes twice
		o.parts[k] = append([]byte{byte(frag & 1)}, l4...)
		return nil, nil, true
	case frag&1 == 1:
		l4 = append(bytes.Clone(l4), other[1:]...)
	default:
		l4 = append(bytes.Clone(other[1:]), l4...)
	}
	delete(o.parts, k)
	return ends, l4, false
}

// wrap puts a tap in front of each host, which gives datagrams of memcached's port to the oracle.
func (o *netcacheOracle) wrap(name string, n simnet.Node) simnet.Node {
	if name == rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		ends, l4, more := o.datagram(name, f.Data)
		if len(l4) < 16 {
			return !more
		}
		from, to := binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		if from != netcachePort && to != netcachePort {
			return true
		}
		if s := foldSum(onesSum(l4) + onesSum(ends) + 17 + uint32(len(l4))); s != 0xffff || int(binary.BigEndian.Uint16(l4[4:])) != len(l4) {
			o.fail("a datagram with a wrong checksum or length at %s: %x", name, f.Data)
		}
		id, text, client := binary.BigEndian.Uint16(l4[8:]), string(l4[16:]), ends[:len(ends)/2]
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
		if bytes.Equal(s.IPv4.AsSlice(), addr) || bytes.Equal(s.IPv6.AsSlice(), addr) {
			return n
		}
	}
	return 0
}
