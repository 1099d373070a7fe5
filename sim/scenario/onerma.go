package scenario

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Sizes of the scenario onerma. In each region, each slot of each process has an area for itself,
// so that the check knows what each byte must be.
const (
	soloArea     = 4096
	soloSlots    = 6 // the most slots of a process
	soloProcs    = 2 // the most processes of a NIC
	soloNICs     = 4 // the most NICs
	soloRegions  = 2 // regions of each NIC that its peers read and write
	soloSize     = soloArea * soloSlots * soloProcs * soloNICs
	soloFirstPID = 100
	// Each NIC has one executor (for large transfers) with its own bytes behind the areas in each
	// region.
	soloBulk   = 32 << 10
	soloMemory = soloSize + soloBulk*soloNICs
)

// soloPlan has the choices that the seed makes for a run of onerma.
type soloPlan struct {
	nics, procs, slots, ops int
	bulk                    int           // large transfers of each executor
	delay                   time.Duration // delay of each link
	rtt                     time.Duration
	rate                    int64 // of each link, in bits per second; 0 means no limit
	mtu, window, threshold  int   // in bytes; window and threshold are fields of nic.Config
	soloLinks
	replays, forgeries bool    // see soloWatch.attack
	badKeys            float64 // probability that a command has a wrong key
	rekeys             int     // REKEY commands
	crashes            int     // crashes of NICs
	lossless           bool    // no message is lost or waits: links without faults and without a rate, no rekeys, no crashes
}

type soloLinks struct {
	faults         string // the names of the links' faults, for the report
	rules          []fault.Rule
	corrupt, quiet bool // corrupt: some links damage messages; quiet: no link has faults
}

func (p *soloPlan) draw(d *draw) *soloPlan {
	*p = soloPlan{
		nics: d.between(2, soloNICs), procs: d.between(1, soloProcs), slots: d.between(1, soloSlots), ops: d.between(20, 120),
		delay: d.span(time.Microsecond, 10*time.Microsecond), mtu: one(d, 4200, 4200, 1500, 600), window: one(d, 4096, 8192, 12000, 16384, 65536),
		threshold: one(d, 0, 4096, 16384, 65536), badKeys: one(d, 0, 0, 0.1), replays: d.chance(0.4), forgeries: d.chance(0.3),
	}
	p.rtt = 4 * p.delay
	if d.chance(0.4) {
		p.bulk = d.between(1, 6)
	}
	if d.chance(0.3) {
		p.rate = one(d, int64(10), 25, 100) * 1_000_000_000
		p.rtt += 2 * time.Duration(4*4300*8*int64(time.Second)/p.rate)
	}
	if d.chance(0.4) {
		p.rekeys = d.between(1, 10)
	}
	if d.chance(0.25) {
		p.crashes = d.between(1, 3)
	}
	p.drawFaults(d)
	p.quiet = len(p.rules) == 0
	p.lossless = p.quiet && p.rekeys == 0 && p.crashes == 0 && p.rate == 0
	return p
}

// drawFaults draws the faults of each link. Delays are at most ten round trips, so that some are
// longer than every timeout.
func (p *soloPlan) drawFaults(d *draw) {
	late := func(most float64) fault.Rule {
		r := d.fault(fault.Reorder, most)
		r.Delay = d.span(p.rtt/8, 10*p.rtt)
		return r
	}
	jitter := func() fault.Rule {
		x := d.span(1, p.rtt)
		return fault.Rule{Kind: fault.Delay, Delay: x, Jitter: x}
	}
	for i := range p.nics {
		var list []fault.Rule
		name := one(d, "none", "none", "loss", "late", "copies", "corrupt", "jitter", "all", "all")
		switch name {
		case "loss":
			list = append(list, d.fault(fault.Loss, 0.3))
		case "late":
			list = append(list, late(0.3))
		case "copies":
			list = append(list, d.fault(fault.Duplicate, 0.5), late(0.2))
		case "corrupt":
			list = append(list, d.fault(fault.Corrupt, 0.2))
		case "jitter":
			list = append(list, jitter())
		case "all":
			list = append(list, d.fault(fault.Loss, 0.05), d.fault(fault.Duplicate, 0.2), late(0.2), d.fault(fault.Corrupt, 0.05), jitter())
		}
		p.corrupt = p.corrupt || name == "corrupt" || name == "all"
		p.faults += " " + name
		for j := range list {
			list[j].Link = soloName(i)
			if d.chance(0.3) {
				list[j].Dir = one(d, fault.Up, fault.Down)
			}
		}
		p.rules = append(p.rules, list...)
	}
}

func (p *soloPlan) String() string {
	return fmt.Sprintf("%d NICs with %d processes of %d slots, %d operations each, %d large transfers, RTT %v, rate %d Gbit/s, MTU %d, window %d, threshold %d, bad keys %g, replays %t, forgeries %t, %d rekeys, %d crashes; links%s",
		p.nics, p.procs, p.slots, p.ops, p.bulk, p.rtt, p.rate/1_000_000_000, p.mtu, p.window, p.threshold, p.badKeys, p.replays, p.forgeries, p.rekeys, p.crashes, p.faults)
}

func soloName(i int) string { return fmt.Sprintf("nic%d", i+1) }

func soloAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}) }

func soloMAC(a netip.Addr) (wire.MAC, bool) {
	b := a.As4()
	return wire.MAC{2, 0, 0, 0, 0, b[3]}, true
}

// soloRun is one run of onerma: NICs without connections, and a switch that forwards.
type soloRun struct {
	env   *env
	plan  *soloPlan
	net   *simnet.Net
	hosts []*soloHost
	pids  nic.PID // the ID that a process got last
	ended [5]int  // number of operations by their status
	moved [5]int  // number of large transfers by their status
	late  int     // WRITEs that ended with status TIMEOUT
	over  bool    // all processes have returned, so there are no more attacks and crashes
}

// soloHost is a host with its NIC. Its memory survives crashes of the NIC.
type soloHost struct {
	run     *soloRun
	index   int
	node    simnet.NodeID
	link    *simnet.Link
	nic     *nic.NIC
	machine *executor.Machine
	watch   *soloWatch
	epoch   uint32 // how often the NIC was started
	memory  [soloRegions][]byte
	local   []byte
	tables  *mem.Table
	mrs     [soloRegions + 2]*mem.Region // of memory, of local, and for completions
	regions [soloRegions]*nic.Region
	mine    *nic.Region // the NIC's region for the memory `local`
	ends    *nic.Region // that for completions
	areas   [soloRegions][soloSize / soloArea]soloSpot
	procs   []*simnet.Proc
	clients []*soloClient
}

// soloSpot has the data of the check about an area: the bytes that the area must have, and the
// WRITE in flight to it.
type soloSpot struct {
	model   []byte
	writing *soloOp
	// loose is the time until which a WRITE that a NIC sent before its crash may change the area.
	loose clock.Time
}

func (p *soloPlan) run(e *env) error {
	r := &soloRun{env: e, plan: p.draw(e.draw), pids: soloFirstPID}
	e.report.Plan = r.plan.String()
	if err := r.build(); err != nil {
		return err
	}
	defer e.finishNet(r.net)
	for _, h := range r.hosts {
		h.start()
	}
	r.manage()
	r.crash()
	if err := r.net.Run(); err != nil {
		return err
	}
	r.env.report.Virtual, r.over = r.net.Now().Sub(0), true
	if err := r.net.RunUntil(r.net.Now().Add(100 * r.plan.rtt)); err != nil {
		return err
	}
	return r.judge()
}

func (r *soloRun) build() error {
	trace, err := r.env.tracer()
	if err != nil {
		return err
	}
	r.net = simnet.New(simnet.Config{MaxEvents: maxEvents, MaxTime: maxVirtual, Cancelled: r.env.opt.Cancelled, Trace: trace})
	sw, err := pipeline.New(pipeline.Config{Ports: r.plan.nics, Program: forward.Program{}})
	if err != nil {
		return err
	}
	box := r.net.Add("switch", sw)
	for i := range r.plan.nics {
		h := &soloHost{run: r, index: i, tables: mem.New(rand.New(rand.NewPCG(r.env.seed, uint64(i))), 0)}
		if err := h.register(); err != nil {
			return err
		}
		if err := h.boot(); err != nil {
			return err
		}
		h.watch = &soloWatch{soloHost: h, solicited: make(map[soloID]*soloDebt)}
		var node simnet.Node = h.watch
		if r.env.opt.Wrap != nil {
			node = r.env.opt.Wrap(soloName(i), node)
		}
		h.node = r.net.Add(soloName(i), node)
		verdict := func(d fault.Dir) simnet.Verdict {
			return fault.NewInjector(r.env.seed, soloName(i), d, r.plan.rules).Frame
		}
		h.link = r.net.Connect(simnet.LinkConfig{
			Name: soloName(i), A: simnet.End{Node: h.node}, B: simnet.End{Node: box, Port: i}, Delay: r.plan.delay, Rate: r.plan.rate, Up: verdict(fault.Up), Down: verdict(fault.Down),
		})
		r.hosts = append(r.hosts, h)
	}
	return nil
}

func (h *soloHost) register() error {
	pd, err := h.tables.AllocPD()
	if err != nil {
		return err
	}
	h.local = make([]byte, soloMemory)
	for i := range h.memory {
		h.memory[i] = make([]byte, soloMemory)
		for j := range h.memory[i] {
			h.memory[i][j] = byte(h.run.env.draw.Uint32())
		}
		for j := range h.areas[i] {
			h.areas[i][j].model = append([]byte(nil), h.memory[i][j*soloArea:][:soloArea]...)
		}
		if h.mrs[i], err = h.tables.Reg(pd, h.memory[i], verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite); err != nil {
			return err
		}
	}
	if h.mrs[soloRegions+1], err = h.tables.Reg(pd, make([]byte, soloProcs*soloSlots*nic.CompletionLen), verbs.LocalWrite); err != nil {
		return err
	}
	h.mrs[soloRegions], err = h.tables.Reg(pd, h.local, verbs.LocalWrite)
	return err
}

// boot starts the NIC, at the beginning or after a crash. At each start the regions get new keys.
func (h *soloHost) boot() error {
	p := h.run.plan
	mac, _ := soloMAC(soloAddr(h.index))
	n, err := nic.New(nic.Config{
		MAC: mac, Addr: soloAddr(h.index), LinkMTU: p.mtu, Resolve: soloMAC, Epoch: h.epoch, RTT: p.rtt, Window: p.window, Threshold: p.threshold,
		Rate: p.rate, Rand: rand.New(rand.NewPCG(h.run.env.seed, uint64(h.epoch)<<8|uint64(h.index))), Slots: 64, Tickets: 32, Regions: 8,
	})
	if err != nil {
		return err
	}
	h.nic, h.machine = n, executor.NewMachine(n)
	h.machine.Failed = func(err error) { h.run.stop("%s: %w", soloName(h.index), err) }
	h.epoch++
	for i := range h.regions {
		if h.regions[i], err = n.Register(h.mrs[i]); err != nil {
			return err
		}
	}
	if h.ends, err = n.Register(h.mrs[soloRegions+1]); err != nil {
		return err
	}
	h.mine, err = n.Register(h.mrs[soloRegions])
	return err
}

// crash plans crashes of NICs at random times. A crash ends the NIC's processes; then the NIC and
// new processes start at once.
func (r *soloRun) crash() {
	for range r.plan.crashes {
		h := r.hosts[r.env.draw.IntN(len(r.hosts))]
		at := clock.Time(0).Add(r.env.draw.span(r.plan.rtt, 100*r.plan.rtt))
		r.net.At(at, func() {
			if r.over {
				return
			}
			for _, p := range h.procs {
				p.Kill()
			}
			h.procs = nil
			for _, c := range h.clients {
				c.crashed()
			}
			h.clients = nil
			h.nic.Down()
			if err := h.boot(); err != nil {
				r.net.Stop(err)
			}
			h.watch.crashed()
			r.net.SetUp(h.node, true)
			h.start()
		})
	}
}

// bound returns the longest time that an operation may take: a READ if read is true, otherwise a
// WRITE or REKEY. The comment of package nic has the reasons.
func (r *soloRun) bound(read bool) time.Duration {
	t := 4 * r.plan.rtt
	if read {
		return 2*r.plan.rtt + t
	}
	return t + t + t/32
}

// sleep parks the process p for the time d. why names the thing for which p waits, for the report
// of a run that hangs.
func (r *soloRun) sleep(p *simnet.Proc, d time.Duration, why string) {
	for until := r.net.Now().Add(d); r.net.Now() < until; {
		p.Park(until, why)
	}
}

func (r *soloRun) stop(format string, args ...any) {
	r.net.Stop(fmt.Errorf("at %v: %w", r.net.Now(), fmt.Errorf(format, args...)))
}

// judge checks the state after the run: the bytes of all areas, and that no NIC has anything in
// flight.
func (r *soloRun) judge() error {
	for _, h := range r.hosts {
		for region := range h.areas {
			for i := range h.areas[region] {
				if err := h.unchanged(region, i); err != nil {
					return err
				}
			}
		}
		if used, _ := h.nic.Window(); used != 0 || h.nic.Deadline() != clock.Never {
			return fmt.Errorf("%s: %d bytes of the window are in use when all is over; deadline %v", soloName(h.index), used, h.nic.Deadline())
		}
	}
	r.env.note("%d operations OK, %d refused, %d NACK, %d TIMEOUT (%d of them WRITE), %d DISPATCH_TIMEOUT", r.ended[nic.OK],
		r.ended[nic.RemoteAuthenticationFailure], r.ended[nic.NACK], r.ended[nic.Timeout], r.late, r.ended[nic.DispatchTimeout])
	if r.plan.bulk > 0 {
		r.env.note("large transfers: %d OK, %d not", r.moved[nic.OK], r.moved[1]+r.moved[2]+r.moved[3]+r.moved[4])
	}
	if r.ended[nic.OK] == 0 && r.plan.quiet && r.plan.crashes == 0 {
		return errors.New("no operation was done")
	}
	return nil
}

// unchanged checks that area i of a region has the bytes that it must have, unless a WRITE may
// change it now. While a WRITE from before a crash may still arrive (until soloSpot.loose), it
// checks nothing. The first check after that accepts the bytes that it finds as the right ones.
func (h *soloHost) unchanged(region, i int) error {
	a := &h.areas[region][i]
	got := h.memory[region][i*soloArea:][:soloArea]
	if a.writing != nil || h.run.net.Now() < a.loose {
		return nil
	}
	if a.loose > 0 {
		copy(a.model, got)
		a.loose = 0
	}
	for j := range got {
		if got[j] != a.model[j] {
			return fmt.Errorf("%s: byte %d of region %d is %#02x, and must be %#02x", soloName(h.index), i*soloArea+j, region, got[j], a.model[j])
		}
	}
	return nil
}
