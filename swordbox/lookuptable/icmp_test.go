package lookuptable

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// icmpError makes an ICMP error of the host to which a packet is addressed. It quotes at most n bytes.
func icmpError(b []byte, n int) []byte {
	var v view
	v.parse(b)
	src, dst := v.addrs(b)
	be := binary.BigEndian
	e := bytes.Clone(b[:v.l4])
	osrc, odst := v.addrs(e)
	copy(osrc, dst)
	copy(odst, src)
	quoted := b[v.ip:]
	quoted = quoted[:min(n, len(quoted))]
	icmp := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, quoted...)
	ip := e[v.ip:]
	if v.v6 {
		icmp[0], icmp[1], ip[6] = 1, 4, protoICMPv6
		be.PutUint16(ip[4:], uint16(len(icmp)))
	} else {
		ip[9] = protoICMP
		be.PutUint16(ip[2:], uint16(len(ip)+len(icmp)))
		be.PutUint16(ip[10:], 0)
		be.PutUint16(ip[10:], ^fold(sumOf(ip)))
	}
	e = append(e, icmp...)
	be.PutUint16(e[v.l4+2:], ^icmpSum(e))
	return e
}

// icmpSum returns the sum that the checksum of an ICMP message makes 0xffff.
func icmpSum(b []byte) uint16 {
	var v view
	v.parse(b)
	if v.v6 {
		return pseudo(b, &v)
	}
	return fold(sumOf(b[v.l4:]))
}

// clean returns a packet without its checksums, and whether they are right, those of the packet that it
// quotes, too, as far as it quotes them.
func clean(b []byte, full bool) ([]byte, bool) {
	var v view
	var q quote
	v.parse(b)
	if !v.parseQuote(b, &q) {
		return nil, false
	}
	right := icmpSum(b) == 0xffff
	at := []int{v.l4 + 2}
	if !v.v6 {
		right = right && fold(sumOf(b[v.ip:v.l4])) == 0xffff && fold(sumOf(b[q.ip:q.l4])) == 0xffff
		at = append(at, v.ip+10, q.ip+10)
	}
	if s := q.sumAt(b); s != 0 {
		right = right && (!full || pseudo(b, &q.view) == 0xffff)
		at = append(at, s)
	}
	b = bytes.Clone(b)
	for _, i := range at {
		b[i], b[i+1] = 0, 0
	}
	return b, right
}

// A packet goes through a NAT, and the error that its new destination sends comes back through it: it is
// the one that the former destination would have sent, about the packet as it was.
func TestErrorsBehindNAT(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	mac := wire.MAC{2, 9, 9}
	macs := func(netip.Addr) (wire.MAC, bool) { return mac, true }
	for range 20_000 {
		v6, flow := r.IntN(2) == 1, r.IntN(2) == 1
		proto := []uint8{protoTCP, protoUDP, protoICMP, 47}[r.IntN(4)]
		p := packet(r, v6, proto)
		copy(p, mac[:])
		n := 8 + ip6Len + 2*r.IntN(30) // no half of a checksum
		var v view
		v.parse(p)
		src, dst := v.addrs(p)
		there := Action{Ops: OpDestination}
		for i := range there.Addr {
			there.Addr[i] = byte(r.Uint32())
		}
		back := Action{Ops: OpSource}
		copy(back.Addr[:], dst)
		want := icmpError(p, n)
		sender := bytes.Clone(src)
		if r.IntN(2) == 1 { // the sender is behind the NAT
			there.Ops, back.Ops = OpSource, OpDestination
			back.Addr = [16]byte{}
			copy(back.Addr[:], src)
			sender = there.Addr[:len(src)]
		}
		if v.ports && flow {
			there.Port, back.Port = uint16(1+r.IntN(60000)), binary.BigEndian.Uint16(p[v.l4+2:])
			if back.Ops == OpDestination {
				back.Port = binary.BigEndian.Uint16(p[v.l4:])
			}
		}
		was := v.key(p, true)
		there.apply(&packetio.Frame{Data: p}, &v, flow, macs)
		b := icmpError(p, n)
		var e view
		e.parse(b)
		k, now := e.key(b, true), v.key(p, true)
		if k.Src != now.Dst || k.Dst != now.Src || k.Proto != proto || k.SrcPort != now.DstPort || k.DstPort != now.SrcPort {
			t.Fatalf("the error about %+v has the key %+v", now, k)
		}
		if k := e.key(b, false); !bytes.Equal(k.Dst[:len(sender)], sender) {
			t.Fatalf("the error has the destination %x, not %x", k.Dst, sender)
		}
		back.apply(&packetio.Frame{Data: b}, &e, flow, macs)
		got, right := clean(b, n >= len(p)-v.ip)
		wanted, _ := clean(want, false)
		copy(wanted, got[:12]) // MAC addresses
		if !right || !bytes.Equal(got, wanted) {
			t.Fatalf("%+v, %+v: the error about %+v (%d bytes quoted, sums right: %v) is\n%x, not\n%x", there, back, was, n, right, got, wanted)
		}
	}
}

// The error of a router between the ends keeps the router's address if the key is a flow, and quotes the
// packet as it was.
func TestErrorsOfRouters(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	b := icmpError(packet(r, false, protoUDP), 60)
	var v view
	v.parse(b)
	src, _ := v.addrs(b)
	router := [4]byte{192, 0, 2, 1}
	packetio.FixSum(b[v.ip+10:], packetio.SumGrows(src, router[:]))
	copy(src, router[:])
	a := Action{Ops: OpSource, Addr: [16]byte{198, 51, 100, 7}, Port: 99}
	a.apply(&packetio.Frame{Data: b}, &v, true, nil)
	var q quote
	v.parseQuote(b, &q)
	_, dst := q.addrs(b)
	if _, right := clean(b, false); !right || !bytes.Equal(src, router[:]) || !bytes.Equal(dst, a.Addr[:4]) || binary.BigEndian.Uint16(b[q.l4+2:]) != 99 {
		t.Errorf("source %v, quoted destination %v; sums right: %v", src, dst, right)
	}
	quoted := bytes.Clone(b[v.l4:])
	other := Action{Ops: OpSource, Addr: [16]byte{198, 51, 100, 8}}
	other.apply(&packetio.Frame{Data: b}, &v, false, nil)
	if !bytes.Equal(src, other.Addr[:4]) || !bytes.Equal(quoted, b[v.l4:]) {
		t.Errorf("with a destination as key, the source is %v", src)
	}
}
