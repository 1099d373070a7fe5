package scenario

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// teleOracle makes the frames of the hosts and counts those that reach the switch. It knows a
// frame's headers because it has made them: it does not parse frames, except for a number in each
// by which it finds them again. It uses no state of the switch.
type teleOracle struct {
	run     *teleRun
	samples [teleHosts]teleTurns
	counts  [teleHosts]map[telemetry.Key]uint64
	passed  uint64 // frames of measured hosts that have reached the switch
	// sampled counts those of them that belong to the sample.
	sampled uint64
}

// teleFrames makes the frames of hosts, and keeps what it has made.
type teleFrames struct {
	env    *env
	frames []teleFrame
}

// teleFrame is a frame that a host has sent: what a rule that counts by flow would count.
type teleFrame struct {
	from int
	key  telemetry.Key
}

const teleMagic = 0x7e1e5c0e

func (r *teleRun) newOracle() *teleOracle {
	o := &teleOracle{run: r}
	for i := range o.counts {
		o.counts[i] = make(map[telemetry.Key]uint64)
		o.samples[i] = r.plan.sample.turns(i)
	}
	return o
}

// next makes the next frame of a flow of a host. Flow number n modulo 5 decides the protocol.
func (o *teleFrames) next(d *draw, from, flow int) []byte {
	rack := o.env.rack
	to := (from + 1 + flow%(teleHosts-1)) % teleHosts
	src, dst := rack.Host(fmt.Sprintf("cn%d", from)).Spec, rack.Host(fmt.Sprintf("cn%d", to)).Spec
	be := binary.BigEndian
	payload := be.AppendUint32(be.AppendUint32(nil, teleMagic), uint32(len(o.frames)))
	payload = append(payload, make([]byte, d.between(20, 600))...)
	k := telemetry.Key{Type: wire.EtherTypeIPv4, Src: src.IPv4, Dst: dst.IPv4}
	if o.env.v6 {
		k.Type, k.Src, k.Dst = wire.EtherTypeIPv6, src.IPv6, dst.IPv6
	}
	switch flow % 5 {
	case 0, 1:
		k.Proto, k.SrcPort, k.DstPort = 17, uint16(20000+flow), uint16(30000+flow%3)
	case 2:
		k.Proto, k.SrcPort, k.DstPort = 6, uint16(20000+flow), 80
	case 3:
		k.Proto = 89
	case 4:
		k = telemetry.Key{Type: 0x88b5}
	}
	o.frames = append(o.frames, teleFrame{from, k})
	eth := wire.Ethernet{Dst: dst.MAC, Src: src.MAC, Type: k.Type}
	return o.encode(eth, &k, payload, flow%2 == 1)
}

// encode makes the frame with the headers of a key, with a VLAN tag if tagged is true.
func (o *teleFrames) encode(eth wire.Ethernet, k *telemetry.Key, payload []byte, tagged bool) []byte {
	be := binary.BigEndian
	var l4 []byte
	switch k.Proto {
	case 17:
		l4 = be.AppendUint16(be.AppendUint16(be.AppendUint16(be.AppendUint16(nil, k.SrcPort), k.DstPort), uint16(8+len(payload))), 0)
	case 6:
		l4 = append(be.AppendUint16(be.AppendUint16(nil, k.SrcPort), k.DstPort), make([]byte, 16)...)
		l4[12] = 5 << 4
	}
	b := eth.AppendTo(nil)
	if tagged {
		b = append(b[:12], 0x81, 0, 0, 7, byte(k.Type>>8), byte(k.Type))
	}
	n := len(l4) + len(payload)
	switch {
	case !k.Src.IsValid():
	case k.Src.Is4():
		ip := wire.IPv4{TTL: 64, Protocol: k.Proto, Src: k.Src.As4(), Dst: k.Dst.As4()}
		b = ip.AppendTo(b, n)
	default:
		ip := wire.IPv6{HopLimit: 64, NextHeader: k.Proto, Src: k.Src.As16(), Dst: k.Dst.As16()}
		b = ip.AppendTo(b, n)
	}
	return append(append(b, l4...), payload...)
}

// wrap puts a tap in front of the switch.
func (o *teleOracle) wrap(name string, n simnet.Node) simnet.Node {
	if name != rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		if i, ok := numberOf(f.Data); ok {
			o.see(i, len(f.Data))
		}
		return true
	}}
}

// numberOf returns the number of a frame that teleFrames has made; ok is false for other frames.
func numberOf(b []byte) (i int, ok bool) {
	for at := 14; at+8 <= len(b) && at <= 14+4+40+20; at++ {
		if binary.BigEndian.Uint32(b[at:]) == teleMagic {
			return int(binary.BigEndian.Uint32(b[at+4:])), true
		}
	}
	return 0, false
}

// see counts a frame that has reached the switch.
func (o *teleOracle) see(number, length int) {
	f, p := &o.run.mixed.made.frames[number], o.run.plan
	if f.from >= p.measured {
		return
	}
	o.passed++
	if !o.samples[f.from].next() {
		return
	}
	o.sampled++
	amount := uint64(1)
	if p.add == "bytes" {
		amount = uint64(length)
	}
	o.counts[f.from][teleKey(f.key, p.by)] += amount
}

// teleKey returns the key of a frame under a rule with the key `by`.
func teleKey(k telemetry.Key, by string) telemetry.Key {
	switch by {
	case "pair":
		return telemetry.Key{Type: k.Type, Src: k.Src, Dst: k.Dst}
	case "source":
		return telemetry.Key{Type: k.Type, Src: k.Src}
	case "destination":
		return telemetry.Key{Type: k.Type, Dst: k.Dst}
	case "service":
		return telemetry.Key{Type: k.Type, Proto: k.Proto, DstPort: k.DstPort}
	case "protocol":
		return telemetry.Key{Type: k.Type, Proto: k.Proto}
	}
	return k
}

// compare compares the sketch of a host, in the stores' memory, with what the oracle has counted:
// each counter, and the estimates for each key.
func (o *teleOracle) compare(host int) error {
	p := o.run.plan
	want, truth, total := make([]uint64, p.counters()), make(map[telemetry.Key]uint64), uint64(0)
	sketch := telemetry.Sketch{Rows: p.rows, Width: p.slots}
	for i := range p.measured {
		if p.apart && i != host {
			continue
		}
		for k, n := range o.counts[i] {
			truth[k] += n
			total += n
			for row := range p.rows {
				want[sketch.Slot(k.Hash(), row)] += n
			}
		}
	}
	got := make([]uint64, p.counters())
	for i := range got {
		if got[i] = o.run.slot(host, i); got[i] != want[i] {
			return fmt.Errorf("counter %d of sketch %d is %d; frames have added %d", i, host, got[i], want[i])
		}
	}
	r, err := telemetry.Read(sketch, got)
	if err != nil {
		return err
	}
	if r.Total() != total {
		return fmt.Errorf("sketch %d has counted %d of %d", host, r.Total(), total)
	}
	for k, n := range truth {
		if least := r.Upper(k.Hash()); least < n {
			return fmt.Errorf("the sketch estimates at most %d for %+v, which has %d", least, k, n)
		}
	}
	return nil
}
