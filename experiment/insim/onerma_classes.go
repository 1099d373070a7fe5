package insim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// SoloClasses: host h0 reads from h1 by 1RMA, while h2 writes to it by RoCEv2. Both share the switch's
// link to h0. 1RMA messages have priority 0.
const (
	classesWarm = time.Millisecond
	// classesEach and classesDepth are the length of the WRITEs and how many are in flight.
	classesEach, classesDepth = 64 << 10, 16
)

// classesFile is the rack of a load of SoloClasses.
func classesFile(l *experiment.OneRMA) string {
	const ecn = "ecn: {kmin: 100000, kmax: 400000, pmax: 10%}"
	prio, first, roce := 0, ecn, ecn
	switch l.Class {
	case experiment.ClassWeights:
		prio, first, roce = 3, "weight: 1", "weight: 1, "+ecn
	case experiment.ClassStrict:
		prio, first = 3, "strict: true"
	}
	queues := fmt.Sprintf("\n    0: {%s}", first)
	if prio != 0 {
		queues += fmt.Sprintf("\n    %d: {%s}", prio, roce)
	}
	slow := ""
	if l.Marked {
		slow = "congestion: {rp_max_rate: 100Gbit}\n"
	}
	hosts := ""
	for i := range 3 {
		hosts += fmt.Sprintf("\n  - {name: h%d, role: compute, rate: 100Gbit, tos: %d}", i, 8<<2|2)
	}
	return fmt.Sprintf("name: classes\n%sswitch:\n  ports: {rate: 100Gbit, buffer: 64MiB, reaction: 0s}\n  dscp: {8: %d, 48: 6}\n  queues:%s\n    6: {strict: true}\nhosts:%s\n",
		slow, prio, queues, hosts)
}

// twin is a host with a 1RMA NIC beside its RoCEv2 NIC, behind one link.
type twin struct {
	simnet.Node
	soloNIC
	addr netip.Addr
	// begin, if not nil, is called once, at the time `at`.
	at    clock.Time
	begin func(now clock.Time)
	ended func(r *executor.Result)
}

func newTwin(n simnet.Node, i int, mac wire.MAC, addr netip.Addr, resolve func(netip.Addr) (wire.MAC, bool), l *experiment.OneRMA) (*twin, error) {
	own, err := newSoloNIC(i, nic.Config{
		MAC: mac, Addr: addr, Rand: rand.New(rand.NewPCG(uint64(i), 2)), Resolve: resolve, RTT: soloRTT, Rate: soloRate, Slots: soloSlots,
	}, executor.Config{RTT: soloRTT, First: l.First})
	if err != nil {
		return nil, err
	}
	t := &twin{Node: n, soloNIC: own, addr: addr, at: 1}
	t.m.Ended = func() { t.results(func(r *executor.Result) { t.ended(r) }) }
	return t, nil
}

// Frame gives a message of 1RMA to its NIC, and any other frame to the RoCEv2 NIC.
func (t *twin) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	if onerma.Is(f.Data) {
		t.m.Frame(now, port, f, out)
		return
	}
	t.Node.Frame(now, port, f, out)
}

func (t *twin) Tick(now clock.Time, out *packetio.Batch) {
	if t.at <= now {
		t.at = clock.Never
		if t.begin != nil {
			t.begin(now)
		}
	}
	if t.m.Deadline() <= now {
		t.m.Tick(now, out)
	}
	if t.Node.Deadline() <= now {
		t.Node.Tick(now, out)
	}
}

func (t *twin) Deadline() clock.Time {
	return clock.Min(t.at, clock.Min(t.m.Deadline(), t.Node.Deadline()))
}

// Tags of transfers: one of 4 KiB of the endless flow, and a small one.
const (
	tagChunk = iota
	tagSmall
)

// soloClasses measures the shares of both transports, and the times of small READs by 1RMA.
func soloClasses(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	var rack *simrack.Rack
	var failed error
	twins := make([]*twin, 2)
	from := clock.Time(0).Add(classesWarm)
	until := from.Add(l.Span)
	rack, err := newRack(ctx, classesFile(l), simrack.Options{
		Cost: &cost.Model{Link: cost.Link{Delay: soloDelay}}, Datagrams: true, MaxEvents: soloEvents,
		Wrap: func(name string, n simnet.Node) simnet.Node {
			for i := range twins {
				h, ok := n.(*simrack.Host)
				if !ok || name != fmt.Sprintf("h%d", i) {
					continue
				}
				resolve := func(a netip.Addr) (wire.MAC, bool) { return rack.Spec.Neighbour(a) }
				twins[i], failed = newTwin(n, i, h.Spec.MAC, h.Addr(), resolve, l)
				return twins[i]
			}
			return n
		},
	})
	if err != nil {
		return err
	}
	defer rack.Close()
	if failed != nil {
		return failed
	}
	client, server := twins[0], twins[1]
	key := nic.NewCipher(server.region.Grant(client.addr, client.portal.PID(), onerma.Read))
	read := func(now clock.Time, bytes int, tag uint64) {
		if err := client.exec.Start(now, executor.Transfer{
			Op: onerma.Read, Target: server.addr, Remote: server.region.ID(), Length: bytes, Local: client.region, Key: key, Deadline: clock.Never, Tag: tag,
		}); err != nil {
			rack.Stop(err)
		}
	}
	var took []time.Duration
	moved := 0
	client.ended = func(r *executor.Result) {
		now := rack.Now()
		in := now >= from && now < until
		if r.Tag == tagSmall {
			if in {
				took = append(took, r.Delay)
			}
			read(now, soloSmall, tagSmall)
			return
		}
		if in {
			moved += r.Moved
		}
		read(now, soloChunk, tagChunk)
	}
	if l.Way != experiment.WayRoCE {
		client.begin = func(now clock.Time) {
			read(now, soloSmall, tagSmall)
			for range 64 {
				read(now, soloChunk, tagChunk)
			}
		}
	}
	written := 0
	if !l.Only {
		start(rack, "h2", "writes", func(h *simrack.Host, ctx verbs.Context) error {
			n, err := classesWrites(rack, ctx, from, until)
			written = n
			return err
		})
	}
	if err := rack.Settle(classesWarm + l.Span + 20*soloRTT); err != nil {
		return err
	}
	out.Goodput, out.RoCE = soloGoodput(moved, l.Span), soloGoodput(written, l.Span)
	out.Times(took)
	return nil
}

// classesWrites writes from h2 to h0 without end, and returns how many bytes were acknowledged in the
// measured time.
func classesWrites(rack *simrack.Rack, ctx verbs.Context, from, until clock.Time) (moved int, err error) {
	x := [2]*roceHost{}
	for i, name := range []string{"h2", "h0"} {
		h := rack.Host(name)
		c := h.Context("writes")
		x[i] = &roceHost{rack: &roceRack{Rack: rack}, host: h, ctx: c}
		if x[i].pd, err = c.AllocPD(); err != nil {
			return 0, err
		}
		if x[i].cq, err = c.CreateCQ(2 * classesDepth); err != nil {
			return 0, err
		}
		if x[i].mr, err = x[i].pd.RegMR(nil, classesEach, verbs.LocalWrite|verbs.RemoteWrite); err != nil {
			return 0, err
		}
	}
	p := &rocePair{from: x[0], to: x[1]}
	if err := p.connect(); err != nil {
		return 0, err
	}
	x[0].pairs = []*rocePair{p}
	var again func(time.Duration)
	again = func(time.Duration) {
		now := rack.Now()
		if now >= from && now < until {
			moved += classesEach
		}
		if now < until {
			p.begin(roceOp{op: verbs.OpWrite, bytes: classesEach, done: again})
		}
	}
	for range classesDepth {
		p.begin(roceOp{op: verbs.OpWrite, bytes: classesEach, done: again})
	}
	ctx.Runtime().Go("completions", func() { rack.Stop(x[0].collect()) })
	ctx.Runtime().Sleep(until.Sub(rack.Now()))
	return moved, nil
}
