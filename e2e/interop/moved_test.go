package interop_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The suite can be run again through a switch that tracks all connections, or moves requests to
// connections of its own: see fixture.Through. Neither end of a cell has a connection manager for
// the switch, and each cell has a protection domain of its own. So the target of a cell makes one
// more queue pair in that domain, whose peer is the switch, and `rdmalab switch connections`
// announces it to the switch.

// switchSection is the section of the rack file with the rules of the switch, for all addresses of
// both NICs.
func switchSection() string {
	run := fixture.Through()
	if run == fixture.Forward {
		return ""
	}
	servers := []string{"cn0"}
	for _, a := range guestGIDs {
		servers = append(servers, a.String())
	}
	return fixture.SwitchSection(run, true, servers...)
}

// shares is an end that can make one more queue pair in its protection domain, and connect it.
type shares interface {
	end
	shared(to address, p params) (qpn uint32, err error)
}

// adoption is what a station needs in order to give the switch a connection.
type adoption struct {
	Program string `json:"program"` // path of the program under test
	Rack    string `json:"rack"`
	// MAC is the switch's.
	MAC wire.MAC `json:"mac"`
}

// newAdoption returns the adoption of the suite's rack. The switch has the first addresses of the
// subnets, and the MAC address before those of the hosts.
func newAdoption() *adoption {
	GinkgoHelper()
	mac, err := wire.ParseMAC(rack.Host("cn0").MAC)
	Expect(err).NotTo(HaveOccurred())
	mac[4], mac[5] = 0, 1
	return &adoption{Program: fixture.Binary(), Rack: rack.Name, MAC: mac}
}

// Addresses of the switch, also in the form that guest/verbs.py takes.
var switchAddrs = []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd00:77::1")}

const (
	switchGID4 = "0000:0000:0000:0000:0000:ffff:0a4d:0001"
	switchGID6 = "fd00:0077:0000:0000:0000:0000:0000:0001"
)

// Numbers of the switch's end of adopted connections; the receive PSN of the server wraps soon.
const (
	adoptedQPN  = 0x5b0c5
	adoptedPSN  = 0xfffff8
	adoptedBack = 0x1234
	adoptedRds  = 4
)

// adopted is a target whose requests the switch may move.
type adopted struct {
	shares
	sw     adoption
	server []string // in the form that `switch connections` takes
	v6, up bool
}

func (a *adopted) connect(to address, p params) error {
	if err := a.shares.connect(to, p); err != nil {
		return err
	}
	at := address{QPN: adoptedQPN, GID: switchGID4}
	if a.v6 {
		at.GID = switchGID6
	}
	q := p
	q.SendPSN, q.RecvPSN, q.RdAtomic = adoptedBack, adoptedPSN, adoptedRds
	qpn, err := a.shared(at, q)
	if err != nil {
		return fmt.Errorf("shared queue pair: %w", err)
	}
	err = a.tell(append([]string{
		"adopt", "--server-qpn", fmt.Sprint(qpn), "--qpn", fmt.Sprint(adoptedQPN), "--send-psn", fmt.Sprint(adoptedPSN),
		"--recv-psn", fmt.Sprint(adoptedBack), "--mtu", fmt.Sprint(p.MTU), "--depth", fmt.Sprint(adoptedRds),
	}, a.server...)...)
	a.up = err == nil
	return err
}

func (a *adopted) close() error {
	var err error
	if a.up {
		err = a.tell("drop", a.server[0], "0")
		a.up = false
	}
	return errors.Join(err, a.shares.close())
}

// tell runs `rdmalab switch connections`.
func (a *adopted) tell(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.sw.Program, append([]string{"--rack", a.sw.Rack, "switch", "connections"}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("switch connections %v: %w: %s", args, err, out)
	}
	return nil
}

// adopt gives the switch a connection to the target of a cell, so that it may move the cell's
// requests. Our NIC is a host of the rack, whose addresses share a connection over IPv4; rxe is
// known by the address of the cell, and the switch has no link-local address.
func (p *plan) adopt(c *cell, b end) end {
	s, ok := b.(shares)
	if !ok || p.Adopt == nil || c.Type != "rc" {
		return b
	}
	a := &adopted{shares: s, sw: *p.Adopt, server: []string{"cn0"}}
	if c.Ours {
		of := p.Peers[c.GID]
		if of.IsLinkLocalUnicast() {
			return b
		}
		a.server, a.v6 = []string{of.String(), "--mac", p.PeerMAC.String()}, of.Is6()
	}
	return a
}

func (t *theirs) shared(to address, p params) (uint32, error) {
	var a struct {
		QPN uint32 `json:"qpn"`
	}
	return a.QPN, t.call("share", struct {
		address
		params
	}{to, p}, answerLimit, &a)
}

func (o *ours) shared(to address, p params) (uint32, error) {
	qp, err := o.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: o.cq, RecvCQ: o.rcq, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return 0, err
	}
	o.extra = qp
	a, err := netip.ParseAddr(to.GID)
	if err != nil {
		return 0, err
	}
	err = errors.Join(
		qp.ToInit(verbs.ToInit{Access: allAccess &^ verbs.LocalWrite}),
		qp.ToRTR(verbs.ToRTR{
			DestQPN: wire.QPN(to.QPN), DestGID: verbs.GIDOf(a), SourceGID: 0, RecvPSN: wire.PSN(p.RecvPSN),
			PathMTU: verbs.MTU(p.MTU), MaxDestRdAtomic: p.RdAtomic, MinRNRTimer: p.MinRNR,
		}))
	return uint32(qp.QPN()), err
}

// moves expects a switch with moving rules to move requests of the cells that have some. On a lossy
// link it may move none, because it learns only from packets which queue pairs belong together.
func moves(list []cell, run func()) {
	GinkgoHelper()
	if fixture.Through() != fixture.Move {
		run()
		return
	}
	movable := 0
	for i := range list {
		c := &list[i]
		at := guestGIDs[c.GID]
		if c.Type != "rc" || c.Trouble != "" || spoiled || c.Ours && at.IsLinkLocalUnicast() || !c.atomic() && c.Op != "write" && c.Op != "read" {
			continue
		}
		c.Twice = !c.atomic()
		movable++
	}
	grown := movedBy(run)
	GinkgoWriter.Printf("\n%d requests of %d cells have moved\n", grown["moved"], movable)
	Expect(grown["moved"]).To(BeNumerically(">=", movable))
}

// movedBy returns how much the counters of the switch's hardened handler grew.
func movedBy(f func()) map[string]uint64 {
	GinkgoHelper()
	before := rack.SwitchCounters()
	f()
	after := rack.SwitchCounters()
	grown := map[string]uint64{}
	for part, counters := range after {
		for name, v := range counters {
			if v -= before[part][name]; v == 0 {
				continue
			}
			if GinkgoWriter.Printf("%s %s %+d, ", part, name, v); part == "hardened" {
				grown[name] = v
			}
		}
	}
	return grown
}

// Atomics of our clients on the memory of the kernel's NIC are replaced by WRITEs in the switch.
func describeReplaced() {
	Describe("the switch between our clients and rxe as memory server", Ordered, func() {
		// The rules of a run apply to all requests; the order of specs varies between runs.
		rules := func(action string) {
			GinkgoHelper()
			for i, a := range guestGIDs[1:] {
				id := fmt.Sprintf("r%d", i+3) // the first two are for our NIC and the link-local address
				rack.OK("switch", "rules", "remove", id)
				rack.OK("switch", "rules", "add", "id="+id, "server="+a.String(), "action="+action, "service=none")
			}
		}

		BeforeAll(func() {
			rules("atomics")
			DeferCleanup(rules, string(fixture.Move))
		})

		// The guest may be slow enough for a shared connection to end at its retry limit; then the switch
		// forwards requests as they are for up to 5 s: the cells must be right, and are run again until
		// enough atomics have been replaced.
		replaced := func(list []cell, counter string) {
			GinkgoHelper()
			list = slices.DeleteFunc(list, func(c cell) bool { return !c.atomic() || !c.Ours })
			for i := range list {
				list[i].Depth, list[i].Sizes = 1, slices.Repeat([]int{8}, 100)
			}
			Eventually(func(g Gomega) {
				grown := movedBy(func() {
					checkCells(list, func() []result { return runCells(list, 1) })
				})
				g.Expect(grown["replaced"] + grown["replaced_empty"]).To(BeNumerically(">=", 10*len(list)))
				g.Expect(grown[counter]).NotTo(BeZero(), counter)
			}, fixture.Patience).Should(Succeed())
		}

		It("replaces atomics, and results and memory are right", func() {
			replaced(slices.Concat(cells("IPv4", []int{256, 1024}, 1, 0), cells("IPv6", []int{4096}, 2, 1)), "replaced")
			for _, a := range switchAddrs { // the kernel had to resolve it first
				Expect(linux.do(answerLimit, "ip", "neigh", "show", a.String())).To(ContainSubstring(newAdoption().MAC.String()))
			}
		})

		It("replaces atomics also when the WRITEs that replace them are lost", func() {
			for _, op := range []string{"RC_WRITE_ONLY", "RC_ACK"} {
				rack.OK("inject", "loss", "20%", "--opcode", op, "--link", "vm0", "--dir", "both")
			}
			DeferCleanup(func() { rack.OK("heal", "--all") })
			replaced(cells("IPv4", []int{1024, 2048}, 1, 0), "shared_resent")
		})
	})
}

var _ = func() bool {
	if fixture.Through() == fixture.Move {
		describeReplaced()
	}
	return true
}()
