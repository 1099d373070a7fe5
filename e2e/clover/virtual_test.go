package clover_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// counts has what a run of a sweep counts of an operation.
type counts struct {
	Flags  map[string]string
	Report struct {
		Ops           uint64
		Failed, Wrong uint64
		RTTsPerOp     float64
		PacketsPerOp  float64
	}
}

// Bounds of the difference between rack and simulator. Both draw operations from random numbers, but
// not from the same ones: mixed is more than three standard deviations of what the number of updates
// among 1,000 operations does; without updates readOnly is left.
const (
	mixed, readOnly = 0.10, 0.02
	// setUp is how many packets more the switch counts on a rack in one run: clients connect (those of
	// the simulator do so without packets), hosts find addresses, and leases are renewed by time.
	setUp = 600.0
	// coalesced is how many ACKs fewer an update may have on a rack: the NICs there take several
	// requests of a chain from the link at once, and acknowledge them together.
	coalesced = 1.5
)

var _ = Describe("a workload on the rack and in virtual time", Ordered, func() {
	const file = `
hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-1]", role: memory, memory: 64MiB}
  - {name: "cn[0-3]", role: compute}
`
	const ops = 1000
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(file) })

	// sweep runs all workloads on all stores with one client, whose counts do not depend on who is
	// faster. Workload b mixes the same operations as a, and needs no run of its own.
	sweep := func(on string) (list []counts) {
		GinkgoHelper()
		name := filepath.Join(GinkgoT().TempDir(), on+".jsonl")
		rack.OK("run", "sweep", "--on", on, "--over", "store=clover,sherman,fusee,pdpm-direct,template", "--over", "workload=a,c", "--clients", "1",
			"--keys", "64", "--warmup", "0s", "--ops", fmt.Sprint(ops), "--duration", "60s", "-w", name)
		b, err := os.ReadFile(name)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(string(b)) {
			var c counts
			Expect(json.Unmarshal([]byte(line), &c)).To(Succeed(), line)
			list = append(list, c)
		}
		return list
	}

	It("takes as many round trips and packets there as here", func() {
		virtual, real := sweep("sim"), sweep("rack")
		Expect(virtual).To(HaveLen(10))
		Expect(real).To(HaveLen(len(virtual)))
		whats := make([]string, len(virtual))
		for i, v := range virtual {
			r := &real[i]
			whats[i] = fmt.Sprintf("%s, workload %s: %.3f and %.3f round trips, %.2f and %.2f packets an operation in virtual time and on the rack",
				v.Flags["store"], v.Flags["workload"], v.Report.RTTsPerOp, r.Report.RTTsPerOp, v.Report.PacketsPerOp, r.Report.PacketsPerOp)
			GinkgoWriter.Println(whats[i])
		}
		for i, v := range virtual {
			r, what := &real[i], whats[i]
			Expect(r.Flags["store"]+" "+r.Flags["workload"]).To(Equal(v.Flags["store"]+" "+v.Flags["workload"]), what)
			for _, c := range []*counts{&v, r} {
				Expect(c.Report.Ops).To(BeNumerically("==", ops), what)
				Expect(c.Report.Failed+c.Report.Wrong).To(BeZero(), what)
			}
			share, updates := mixed, map[string]float64{"a": 0.5, "c": 0}[v.Flags["workload"]]
			if updates == 0 {
				share = readOnly
			}
			trips, packets := v.Report.RTTsPerOp, v.Report.PacketsPerOp
			Expect(r.Report.RTTsPerOp).To(BeNumerically("~", trips, share*trips), what)
			Expect(r.Report.PacketsPerOp).To(And(BeNumerically(">", (1-share)*packets-coalesced*updates), BeNumerically("<", (1+share)*packets+setUp/ops)), what)
		}
	})
})
