package scenario

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// lookupOracle makes the sender's frames and checks what arrives at every host. It uses no state of
// the switch, and reads the servers' memory to learn what the entries of flows do. Flow i has the
// UDP source port lookupPort + i. A frame's payload is: magic number, 4 bytes | flow, 2 | number of
// the frame, 4 | length, 2 | bytes that depend on flow and number.
type lookupOracle struct {
	run   *lookupRun
	flows []lookupFlow
	// found counts the frames of flows with an entry that have arrived, missed those of flows
	// without one.
	found, missed uint64
	wrong         map[string]int // by error (such as wrongTwice): how many frames had it
	err           error          // the first error, such as a wrong frame
}

// lookupFlow has the oracle's data about one flow.
type lookupFlow struct {
	// kinds are the kinds of entry that the flow has had, in the order of changes. known is how
	// many of them, counted from the first, are certainly not in force any more.
	kinds []int
	known int
	sent  []int            // for each frame, by its number: the value of known when it was sent
	last  map[string]int64 // for each host: number of the last frame that has arrived there
}

// Names of the errors that a frame which has arrived may show.
const (
	wrongOther  = "never sent"
	wrongEntry  = "not what its entry says"
	wrongTwice  = "arrives twice"
	wrongBehind = "comes behind a later one"
)

const (
	lookupPort  = 10000 // UDP source port of flow 0
	lookupTo    = 7000  // UDP destination port of all flows
	lookupMagic = 0x4c4f4f4b
	lookupHead  = 12   // length of the first four fields of a payload
	lookupNAT   = 9000 // the port that an entry sets in packets of flow 0
)

func (r *lookupRun) newOracle() *lookupOracle {
	o := &lookupOracle{run: r, flows: make([]lookupFlow, r.plan.flows), wrong: make(map[string]int)}
	for i := range o.flows {
		o.flows[i].last = make(map[string]int64)
	}
	return o
}

func (o *lookupOracle) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// is counts a frame that has the error `what`. It keeps err if it is the first error.
func (o *lookupOracle) is(what string, err error) {
	o.wrong[what]++
	o.fail(err)
}

func (o *lookupOracle) arrived() int { return int(o.found + o.missed) }

// The kinds of entries, by what the switch does with a packet. A flow with kindNone has no entry.
const (
	kindMark = iota
	kindDestination
	kindSource
	kindEgress
	kindDrop
	kindNone
	lookupKinds
)

// lookupKindOf gives the kind of an entry by its third byte, which has the entry's actions as bits.
var lookupKindOf = map[byte]int{2: kindMark, 2 + 16: kindDestination, 8: kindSource, 4: kindEgress, 1: kindDrop}

func (o *lookupOracle) host(i int) netip.Addr { return o.run.env.addrOf(fmt.Sprintf("cn%d", i)) }

func (o *lookupOracle) key(flow int) string {
	if o.run.plan.ternary {
		return fmt.Sprintf("mask=1 from=%v to=%v proto=udp sport=%d dport=%d", o.host(0), o.host(1), lookupPort+flow, lookupTo)
	}
	return fmt.Sprintf("from=%v to=%v proto=udp", netip.AddrPortFrom(o.host(0), uint16(lookupPort+flow)), netip.AddrPortFrom(o.host(1), lookupTo))
}

// others returns how many entries to load are not those of flows.
func (o *lookupOracle) others() int {
	if o.run.plan.ternary {
		return 1
	}
	return 0
}

// rest returns the entry, as text, that packets have under a later mask: those of flows without an entry
// of their own leave by the port of cn3.
func (o *lookupOracle) rest() string {
	to := o.host(1).As16()
	to[15] = 0
	bits := netip.AddrFrom16(to)
	if o.host(1).Is6() { // to/24
		clear(to[3:])
		bits = netip.AddrFrom16(to)
	}
	return fmt.Sprintf("mask=3 to=%v proto=udp egress=%v", bits.Unmap(), o.host(3))
}

// entries returns the entries to load, as text. The entry of flow i has the kind i modulo
// lookupKinds.
func (o *lookupOracle) entries() (list []string) {
	if o.run.plan.ternary {
		list = append(list, o.rest())
	}
	for i := range o.flows {
		if k := i % lookupKinds; k != kindNone {
			list = append(list, o.key(i)+" "+o.action(i, k))
		}
	}
	return list
}

// lookupMark returns the DSCP that an entry of kindMark sets in the packets of a flow.
func lookupMark(flow int) uint8 { return uint8(1 + flow%63) }

func (o *lookupOracle) action(flow, kind int) string {
	switch kind {
	case kindMark:
		return fmt.Sprintf("dscp=%d", lookupMark(flow))
	case kindDestination:
		return fmt.Sprintf("dst=%v dscp=9", netip.AddrPortFrom(o.host(2), uint16(lookupNAT+flow)))
	case kindSource:
		return fmt.Sprintf("src=%v", netip.AddrPortFrom(o.host(3), uint16(lookupNAT+flow)))
	case kindEgress:
		return fmt.Sprintf("egress=%v", o.host(3))
	case kindDrop:
		return "drop"
	}
	return ""
}

// other returns an entry, as text, for the n-th flow that sends nothing.
func (o *lookupOracle) other(n int) string { return o.key(o.run.plan.flows+n) + " drop" }

// lookupSlot is the place of a flow's entry in a server's memory.
type lookupSlot struct {
	server int
	offset int
	bytes  []byte // the slot itself in the server's memory
}

// slots returns the slots of flows that have an entry, by flow. The slot's bytes 36 and 37 are the
// flow's source port.
func (o *lookupOracle) slots() map[int]lookupSlot {
	p := o.run.plan
	n, stride, out := p.capacity+7, 64, make(map[int]lookupSlot)
	if p.mode == modePublished {
		n, stride = p.capacity, p.cell
	}
	for i, m := range o.run.memory[1:] {
		for j := range n {
			at := lookupBase + stride*j
			s := m[at:][:64]
			if flow := int(binary.BigEndian.Uint16(s[36:])) - lookupPort; s[1]&1 != 0 && flow >= 0 && flow < len(o.flows) {
				out[flow] = lookupSlot{1 + i, at, s}
			}
		}
	}
	return out
}

// readTable reads the kinds of the flows' entries in the servers' memory. It is called while none
// of these entries changes.
func (o *lookupOracle) readTable() {
	table := o.slots()
	for i := range o.flows {
		f, kind := &o.flows[i], kindNone
		if s, ok := table[i]; ok {
			if kind, ok = lookupKindOf[s.bytes[2]]; !ok {
				o.fail(fmt.Errorf("the entry of flow %d is %x", i, s.bytes))
			}
		}
		f.change(kind)
		f.known = len(f.kinds) - 1
	}
}

// change records that the entry of flow f may have this kind from now on: the run requests the
// change, or the oracle has read the entry from the table.
func (f *lookupFlow) change(kind int) {
	if n := len(f.kinds); n == 0 || f.kinds[n-1] != kind {
		f.kinds = append(f.kinds, kind)
	}
}

// next makes the next frame of a flow, with a random length.
func (o *lookupOracle) next(d *draw, flow int) []byte {
	f := &o.flows[flow]
	n := uint32(len(f.sent))
	f.sent = append(f.sent, f.known)
	size := max(lookupHead, d.between(o.run.plan.payload.least, o.run.plan.payload.most))
	b, _ := o.build(flow, o.payload(flow, n, size), lookupKinds)
	return b
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

// build makes a frame of a flow as it arrives under an entry of this kind, and returns the name of
// the host at which it arrives. With lookupKinds it makes the frame as cn0 sends it. It returns nil
// if the frame must not arrive.
func (o *lookupOracle) build(flow int, payload []byte, kind int) (b []byte, at string) {
	rack := o.run.env.rack
	src, dst := netip.AddrPortFrom(o.host(0), uint16(lookupPort+flow)), netip.AddrPortFrom(o.host(1), lookupTo)
	to, class := "cn1", uint8(1) // the lower two bits are ECN, which the switch must not change
	switch kind {
	case kindMark:
		class |= lookupMark(flow) << 2
	case kindDestination:
		to, class, dst = "cn2", class|9<<2, netip.AddrPortFrom(o.host(2), uint16(lookupNAT+flow))
	case kindSource:
		src = netip.AddrPortFrom(o.host(3), uint16(lookupNAT+flow))
	case kindDrop:
		return nil, ""
	case kindNone:
		if o.run.plan.ternary {
			kind = kindEgress
		} else if o.run.plan.drop {
			return nil, ""
		}
	}
	eth := wire.Ethernet{Dst: rack.Host(to).Spec.MAC, Src: rack.Host("cn0").Spec.MAC}
	be := binary.BigEndian
	n := 8 + len(payload)
	if src.Addr().Is4() {
		eth.Type = wire.EtherTypeIPv4
		ip := wire.IPv4{TOS: class, TTL: 64, Protocol: 17, Src: src.Addr().As4(), Dst: dst.Addr().As4()}
		b = ip.AppendTo(eth.AppendTo(nil), n)
	} else {
		eth.Type = wire.EtherTypeIPv6
		ip := wire.IPv6{TrafficClass: class, HopLimit: 64, NextHeader: 17, Src: src.Addr().As16(), Dst: dst.Addr().As16()}
		b = ip.AppendTo(eth.AppendTo(nil), n)
	}
	l4 := len(b)
	b = be.AppendUint16(be.AppendUint16(be.AppendUint16(be.AppendUint16(b, src.Port()), dst.Port()), uint16(n)), 0)
	b = append(b, payload...)
	sum := onesSum(b[l4:]) + onesSum(src.Addr().AsSlice()) + onesSum(dst.Addr().AsSlice()) + 17 + uint32(n)
	be.PutUint16(b[l4+6:], cmp.Or(^foldSum(sum), 0xffff)) // 0 would mean that there is no checksum
	if at = to; kind == kindEgress {
		at = "cn3"
	}
	return b, at
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

// wrap puts a tap in front of each host. The tap gives the frames that the oracle has made to the
// oracle's method see, and all other frames to the host.
func (o *lookupOracle) wrap(name string, n simnet.Node) simnet.Node {
	if name == rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		b, head := f.Data, 14+20+8
		if len(b) > 14 && b[14]>>4 == 6 {
			head += 20
		}
		if len(b) < head+lookupHead || binary.BigEndian.Uint32(b[head:]) != lookupMagic {
			return true
		}
		o.see(name, b, b[head:])
		return false
	}}
}

// see checks a frame b that has arrived at a host. An entry that the frame's flow may have had, or
// the lack of an entry, must explain why the frame arrives at this host with these bytes. Neither
// this frame nor a later one of its flow may have arrived there before.
func (o *lookupOracle) see(host string, b, payload []byte) {
	be := binary.BigEndian
	flow, n, size := int(be.Uint16(payload[4:])), int64(be.Uint32(payload[6:])), int(be.Uint16(payload[10:]))
	if flow >= len(o.flows) || n >= int64(len(o.flows[flow].sent)) || size < lookupHead || size > o.run.plan.payload.most+lookupHead {
		o.is(wrongOther, fmt.Errorf("a frame that no host has sent: %x", payload[:lookupHead]))
		return
	}
	f := &o.flows[flow]
	kind, matches := o.kind(f, host, b, flow, uint32(n), size)
	if kind == kindNone && !o.run.plan.ternary {
		o.missed++
	} else {
		o.found++
	}
	last, seen := f.last[host]
	switch {
	case !matches:
		want, at := o.build(flow, o.payload(flow, uint32(n), size), f.kinds[len(f.kinds)-1])
		o.is(wrongEntry, fmt.Errorf("frame %d of flow %d (%s) arrives at %s, not at %q, and is\n%x, not\n%x", n, flow, o.action(flow, kind), host, at, b, want))
	case seen && n == last:
		o.is(wrongTwice, fmt.Errorf("frame %d of flow %d arrives twice", n, flow))
	case seen && n < last:
		o.is(wrongBehind, fmt.Errorf("frame %d of flow %d comes behind frame %d", n, flow, last))
	}
	if !seen || n > last {
		f.last[host] = n
	}
}

// kind returns the kind of entry that explains the arrival of frame n of flow f at a host, and
// true. It tries the kinds that the flow may have had since the frame was sent. If none explains
// the arrival, kind returns the flow's last kind and false.
func (o *lookupOracle) kind(f *lookupFlow, host string, b []byte, flow int, n uint32, size int) (kind int, ok bool) {
	payload := o.payload(flow, n, size)
	for i := len(f.kinds) - 1; i >= f.sent[n]; i-- {
		if want, at := o.build(flow, payload, f.kinds[i]); want != nil && at == host && bytes.Equal(b, want) {
			return f.kinds[i], true
		}
	}
	return f.kinds[len(f.kinds)-1], false
}
