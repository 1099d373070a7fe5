package insim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

const (
	// A Lookups load with a window of one packet counts lookupRounds packets. A load with a larger
	// window counts the packets that arrive in lookupTime. Not counted are the first lookupWarm
	// packets of each flow or, if Window is larger than Flows, the first lookupWarm windows.
	lookupRounds = 200
	lookupWarm   = 2
	lookupTime   = 200 * time.Microsecond

	lookupRule     = "table" // ID of the rule
	lookupCapacity = 4096    // slots on each server
	lookupCell     = 2048    // bytes of a cell
	lookupPort     = 10000   // source port of flow 0
	lookupTo       = 9       // destination port of all flows
	lookupClass    = 46 << 2 // the DSCP that entries set, as it is in the type-of-service byte
	// lookupHead is the length of the headers of Ethernet, IPv4 and UDP. The packet's number
	// follows them.
	lookupHead = 14 + 20 + 8
)

type lookupLoad struct {
	*lentRun
	experiment.Lookups
	frames  [][]byte        // the packet of each flow
	next    int             // number of the next packet
	sent    []clock.Time    // by the number of a packet: when it was sent
	from    clock.Time      // when the first counted packet arrived
	until   int             // number of packets that were sent when counting ended; 0 while packets are counted
	times   []time.Duration // how long the counted packets took
	arrived []clock.Time    // when they arrived
	wrong   int             // see LookupsResult.Wrong
	pending int             // packets in the network
}

func (p *Sim) Lookups(ctx context.Context, l experiment.Lookups) (experiment.LookupsResult, error) {
	servers := max(1, l.Servers)
	cells, cache, conns := max(16, 2*l.Window), 0, servers
	rack := lentRack{hosts: 2, servers: servers, bytes: (lookupCapacity + 1 + cells) * lookupCell}
	if l.Where == experiment.LookupCached {
		cache = 2 * l.Flows
	}
	if l.Where == experiment.LookupNone {
		conns = 0
	} else {
		rack.rule = fmt.Sprintf("id: %s, server: cn0, action: lookup, table: %q, mode: %s, capacity: %d, cells: %d, cell: %d, cache: %d, miss: drop",
			lookupRule, serverList(servers), l.Mode, lookupCapacity, cells, lookupCell, cache)
		if l.Circle {
			rack.rule += ", packets: recirculate"
		}
	}
	run := &lookupLoad{Lookups: l}
	var err error
	if run.lentRun, err = p.lent(ctx, rack, run.see); err != nil {
		return experiment.LookupsResult{}, err
	}
	for i := range l.Flows {
		run.frames = append(run.frames, run.frame(i))
	}
	if err := run.drive(ctx, conns, run.work); err != nil {
		return experiment.LookupsResult{}, err
	}
	out := experiment.LookupsResult{Wrong: run.wrong, Lost: run.pending}
	if len(run.times) == 0 {
		return out, errors.New("no packet has arrived")
	}
	slices.Sort(run.times)
	out.Median = run.times[len(run.times)/2]
	if c := run.rack.Counters("lookup"); c["circled"] > 0 && p.Cost.Switch.Delay > 0 {
		out.Passes = float64(c["circled_ns"]/c["circled"]) / float64(p.Cost.Switch.Delay)
	}
	out.Rate, err = perSecond(run.arrived)
	return out, err
}

// frame makes the packet of a flow, a UDP datagram from cn0 to cn1.
func (r *lookupLoad) frame(flow int) []byte {
	from, to := r.rack.Host("cn0"), r.rack.Host("cn1")
	eth := wire.Ethernet{Dst: to.Spec.MAC, Src: from.Spec.MAC, Type: wire.EtherTypeIPv4}
	ip := wire.IPv4{TTL: 64, Protocol: 17, Src: from.Addr().As4(), Dst: to.Addr().As4()}
	b := ip.AppendTo(eth.AppendTo(nil), r.Bytes-lookupHead+8)
	be := binary.BigEndian
	b = be.AppendUint16(be.AppendUint16(b, uint16(lookupPort+flow)), lookupTo)
	b = be.AppendUint16(be.AppendUint16(b, uint16(r.Bytes-lookupHead+8)), 0) // no checksum
	return append(b, make([]byte, r.Bytes-len(b))...)
}

// entries lists the table entries for the packets of all flows.
func (r *lookupLoad) entries() (list []string) {
	from, to := r.rack.Host("cn0").Addr(), r.rack.Host("cn1").Addr()
	for i := range r.Flows {
		list = append(list, fmt.Sprintf("from=%v to=%v proto=udp dscp=%d",
			netip.AddrPortFrom(from, uint16(lookupPort+i)), netip.AddrPortFrom(to, lookupTo), lookupClass>>2))
	}
	return list
}

// load writes the entries into the table.
func (r *lookupLoad) load(rt verbs.Runtime) error {
	list := r.entries()
	for taken, waiting := 0, 1; taken < len(list) || waiting > 0; rt.Sleep(lentPoll) {
		out, err := r.rack.ChangeEntries(handler.Entries{Rule: lookupRule, Entries: list[taken:]})
		if err != nil {
			return err
		}
		taken, waiting = taken+out.Taken, out.Waiting
		if rt.Now() > lentPatience {
			return fmt.Errorf("%d of %d entries are in the table: %v", taken, len(list), r.rack.Counters("lookup"))
		}
	}
	return nil
}

// work loads the table, sends the first packets, and waits for the last one.
func (r *lookupLoad) work(ctx verbs.Context) error {
	rt := ctx.Runtime()
	if r.Where != experiment.LookupNone {
		if err := r.load(rt); err != nil {
			return err
		}
	}
	rt.Sleep(time.Millisecond)
	for range r.Window {
		r.send()
	}
	for end := rt.Now().Add(time.Second); r.until == 0 || r.pending > 0; rt.Sleep(lentPoll) {
		if rt.Now() > end {
			return fmt.Errorf("%d of %d packets are on their way after a second: %v", r.pending, r.next, r.rack.Counters("lookup"))
		}
	}
	return nil
}

func (r *lookupLoad) send() {
	b := r.frames[r.next%r.Flows]
	binary.BigEndian.PutUint32(b[lookupHead:], uint32(r.next))
	r.sent = append(r.sent, r.rack.Now())
	r.next++
	r.pending++
	r.rack.Host("cn0").Inject(fault.Up, b, nil)
}

// see is the function lentRun.seen of the load. It counts a packet that has arrived at cn1, and
// sends the next packet unless enough packets were counted.
func (r *lookupLoad) see(now clock.Time, host string, b []byte) bool {
	if host != "cn1" || len(b) != r.Bytes || binary.BigEndian.Uint16(b[12:]) != wire.EtherTypeIPv4 || binary.BigEndian.Uint16(b[36:]) != lookupTo {
		return false
	}
	n := int(binary.BigEndian.Uint32(b[lookupHead:]))
	r.pending--
	if marked := b[15] == lookupClass; marked != (r.Where != experiment.LookupNone) {
		r.wrong++
	}
	if n >= lookupWarm*max(r.Flows, r.Window) && r.until == 0 {
		if r.from == 0 {
			r.from = now
		}
		r.times = append(r.times, now.Sub(r.sent[n]))
		r.arrived = append(r.arrived, now)
		if r.Window == 1 && len(r.times) == lookupRounds || r.Window > 1 && now.Sub(r.from) >= lookupTime {
			r.until = r.next
		}
	}
	if r.until == 0 {
		r.rack.At(now, r.send)
	}
	return true
}
