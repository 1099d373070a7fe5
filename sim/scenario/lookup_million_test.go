package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
)

const (
	millionFlows  = 1_010_000
	millionFrames = 20_000
	millionHead   = 12 // of a payload: magic, flow, number
)

// millionRun sends packets of 1,010,000 flows by a Zipf distribution through a table with an entry for
// nearly each. The entries are in the servers' memory before the switch starts. Flow i has its number
// in its source address; its entry sets a DSCP that depends on it.
type millionRun struct {
	lenders
	has     []bool // by flow: there is an entry
	entries int
	flows   []int // of each packet
	seen    []bool
	last    map[int]int
	with    int // packets with an entry that have arrived
	without int
	err     error
}

func (r *millionRun) mark(flow int) uint8 { return uint8(1 + flow%63) }

func (r *millionRun) key(flow int) lookuptable.Key {
	to := r.env.addrOf("cn1").As4()
	k := lookuptable.Key{Src: [16]byte{11, byte(flow >> 16), byte(flow >> 8), byte(flow)}, SrcPort: uint16(1000 + flow%50_000), DstPort: lookupTo, Proto: 17}
	copy(k.Dst[:], to[:])
	return k
}

// fill writes the entries into the memory of the servers, each into the first free slot that its key may
// take. A flow for which there is none has no entry.
func (r *millionRun) fill(l *lookuptable.Layout) {
	r.has = make([]bool, millionFlows)
	for i := range r.has {
		e := lookuptable.Entry{Key: r.key(i), Action: lookuptable.Action{Ops: lookuptable.OpDSCP, DSCP: r.mark(i)}}
		server, home := l.Place(e.Key.Hash())
		for s := home; s < home+lookuptable.Probe && !r.has[i]; s++ {
			slot := r.memory[1+server][l.At(s):][:lookuptable.SlotLen]
			if slot[1] == 0 { // not used
				lookuptable.AppendSlot(slot[:0], 1, &e, true)
				r.has[i] = true
				r.entries++
			}
		}
	}
}

func (r *millionRun) frame(flow, n int) []byte {
	k := r.key(flow)
	rack := r.env.rack
	eth := wire.Ethernet{Dst: rack.Host("cn1").Spec.MAC, Src: rack.Host("cn0").Spec.MAC, Type: wire.EtherTypeIPv4}
	size := millionHead + (flow+n)%700
	ip := wire.IPv4{TTL: 64, Protocol: 17, Src: [4]byte(k.Src[:4]), Dst: [4]byte(k.Dst[:4])}
	b := ip.AppendTo(eth.AppendTo(nil), 8+size)
	be := binary.BigEndian
	b = be.AppendUint16(be.AppendUint16(be.AppendUint16(be.AppendUint16(b, k.SrcPort), k.DstPort), uint16(8+size)), 0)
	b = be.AppendUint32(be.AppendUint32(be.AppendUint32(b, lookupMagic), uint32(flow)), uint32(n))
	for i := millionHead; i < size; i++ {
		b = append(b, byte(i*7+n*13+flow*29))
	}
	return b
}

func (r *millionRun) wrap(name string, n simnet.Node) simnet.Node {
	if name != "cn1" {
		return n
	}
	return &millionPoint{Node: n, run: r}
}

// millionPoint shows the packets that arrive at cn1.
type millionPoint struct {
	simnet.Node
	run *millionRun
}

func (p *millionPoint) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	const head = 14 + 20 + 8
	if b := f.Data; len(b) >= head+millionHead && binary.BigEndian.Uint32(b[head:]) == lookupMagic {
		p.run.see(b, int(binary.BigEndian.Uint32(b[head+4:])), int(binary.BigEndian.Uint32(b[head+8:])))
		return
	}
	p.Node.Frame(now, port, f, out)
}

// see checks a packet that has arrived: its bytes, what its entry does, that it is the first of its
// number, and that it is behind all earlier ones of its flow.
func (r *millionRun) see(b []byte, flow, n int) {
	want := r.frame(flow, n)
	if r.has[flow] {
		v := lookupView(want)
		v[1] = r.mark(flow) << 2
		v[10], v[11] = 0, 0
		binary.BigEndian.PutUint16(v[10:], ^foldSum(onesSum(v)))
		r.with++
	} else {
		r.without++
	}
	switch last, known := r.last[flow]; {
	case n >= len(r.flows) || r.flows[n] != flow || string(b) != string(want):
		r.err = fmt.Errorf("packet %d of flow %d arrives as\n%x, not\n%x", n, flow, b, want)
	case r.seen[n]:
		r.err = fmt.Errorf("packet %d of flow %d arrives twice", n, flow)
	case known && n < last:
		r.err = fmt.Errorf("packet %d of flow %d comes behind packet %d", n, flow, last)
	}
	r.seen[n], r.last[flow] = true, n
}

// lookupView returns the header of IPv4.
func lookupView(b []byte) []byte { return b[14:34] }

// A million entries and packets of flows by a Zipf distribution: each packet that arrives has what its
// entry does, none arrives twice or with another one's bytes, and hits and misses are counted exactly.
// With faults on the link to a server, packets that do not arrive are counted as lost. PSNs wrap around.
// In one case the table is at the end of a server's region of ten gigabytes, whose other pages nothing
// touches.
func TestLookupMillionEntries(t *testing.T) {
	for name, c := range map[string]struct {
		base  uint64
		rules []fault.Rule
	}{
		"calm": {},
		"far":  {base: 0x24c000000},
		"faults": {rules: []fault.Rule{
			{Link: "ms1", Kind: fault.Loss, Probability: 0.002},
			{Link: "ms1", Kind: fault.Duplicate, Probability: 0.01},
			{Link: "ms1", Kind: fault.Reorder, Probability: 0.005, Delay: 20 * time.Microsecond},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rules := c.rules
			r := &millionRun{seen: make([]bool, millionFrames), last: make(map[int]int)}
			e := newEnv(Scenario{Name: "lookup"}, 1, Options{})
			t.Cleanup(e.finish)
			r.lenders = lenders{env: e, group: "lookup"}
			err := e.build(lenderRack(2, 3, fmt.Sprintf(`{id: look, server: cn0, action: lookup, table: "ms1,ms2", base: "%#x", capacity: 1048576, cells: 512, cache: 1024}`, c.base)),
				simrack.Options{Seed: 1, Datagrams: true, Delay: time.Microsecond, Wrap: r.wrap, FirstPSN: psnNearWrap})
			if err != nil {
				t.Fatal(err)
			}
			l := lookuptable.LayoutOf(&e.rack.Spec.Switch.Rules[0])
			if c.base == 0 {
				r.lend(3, int(l.End()))
			} else {
				r.lendMapped(t, 3, int(l.End()))
			}
			r.fill(&l)
			e.setFaults(rules)
			e.rack.At(0, e.rack.Announce)
			e.client("cn1", "watcher", r.watch)
			if err := errors.Join(e.run(), r.err); err != nil {
				t.Fatal(err)
			}
			c := r.counts()
			found := c["hits"] + c["cached"]
			t.Logf("%d entries, %d flows of %d packets: %d hits, %d cached (%d %%), %d misses, %d lost, %d blocked", r.entries, len(r.last), millionFrames,
				c["hits"], c["cached"], 100*c["cached"]/max(1, found), c["misses"], c["lost"], c["blocked"])
			if r.entries < 1_000_000 || found != uint64(r.with) || c["misses"] != uint64(r.without) || c["hits"] == 0 || c["cached"] == 0 || c["misses"] == 0 {
				t.Errorf("%d packets with an entry and %d without arrived: %v", r.with, r.without, c)
			}
			if gone := millionFrames - r.with - r.without; uint64(gone) != c["lost"]+c["blocked"]+c["full"]+c["torn"] || (gone == 0) != (rules == nil) || c["torn"] != 0 {
				t.Errorf("%d packets did not arrive: %v", gone, c)
			}
		})
	}
}

// lendMapped makes n hosts lend memory of which only the pages that are touched exist.
func (r *millionRun) lendMapped(t *testing.T, n, size int) {
	t.Helper()
	for i := range n {
		b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		r.memory = append(r.memory, b)
		r.serve(i)
	}
}

// watch waits for the connections, sends all packets, and waits until none is in flight.
func (r *millionRun) watch(ctx verbs.Context) error {
	rt := ctx.Runtime()
	rt.Sleep(20 * time.Millisecond)
	d, zipf := newDraw(7), kv.NewZipf(millionFlows, 0.99)
	h := r.env.rack.Host("cn0")
	for n := 0; n < millionFrames; rt.Sleep(10 * time.Microsecond) {
		list := make([][]byte, 8)
		for i := range list {
			flow := int(zipf.Next(d.Rand))
			r.flows = append(r.flows, flow)
			list[i] = r.frame(flow, n)
			n++
		}
		r.env.rack.At(rt.Now(), func() {
			for _, b := range list {
				h.Inject(fault.Up, b, nil)
			}
		})
	}
	for end := rt.Now().Add(10 * time.Second); ; rt.Sleep(bufferEvery) {
		if c := r.counts(); c["frames"] == millionFrames && c["in_flight"] == 0 && c["cells"] == 0 {
			return nil
		}
		if rt.Now() > end {
			return fmt.Errorf("10 s after the last packet: %v", r.counts())
		}
	}
}

// Twenty-four flows share sixteen home slots: entries move on, and some find no room. No packet meets
// another one's entry or comes with another one's bytes, and hits and misses are counted exactly. PSNs
// wrap around.
func TestCollisionsInSixteenSlots(t *testing.T) {
	for _, cache := range []int{0, 4} {
		r, err := playLookup(t, modeHardened, Options{}, func(p *lookupPlan) {
			p.capacity, p.flows, p.frames, p.theta, p.cache = 16, 30, 4000, 1.2, cache
			p.rack.FirstPSN = psnNearWrap
		})
		if err != nil || r.count("refused") == 0 || r.count("hits") == 0 || r.count("misses") == 0 || (r.count("cached") == 0) != (cache == 0) {
			t.Errorf("cache of %d: %v; %v", cache, err, r.env.report.Notes)
		}
	}
}
