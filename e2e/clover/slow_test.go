package clover_test

import (
	"encoding/json"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// slowFile is a rack whose NICs are so slow that no machine limits it: a CAS on one word takes 1.7 ms of
// real time.
const slowFile = `
slow: 5000
hosts:
  - {name: md0, role: metadata}
  - {name: ms0, role: memory}
  - {name: "cn[0-1]", role: compute}
`

var _ = Describe("a rack in slow motion", Ordered, func() {
	// Sixteen clients that write four keys: without steering most CASes fail, and the words' pace in
	// the NIC of the memory server limits. A machine that is busy makes every number of the rack
	// lower, and so never the gain of steering, which needs fewer packets, higher than it is.
	load := []string{
		"run", "ycsb", "--workload", "w", "--clients", "16", "--keys", "4", "--zipf", "0", "--mode", "published", "--warmup", "500us", "--duration", "1ms", "-q", "-o", "json",
	}
	type report struct {
		Throughput              float64 `json:"opsPerSecond"`
		RealThroughput          float64
		Failed, Wrong, NotFound uint64
		Slow                    int
		FirstTry                float64
	}
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(slowFile) })

	It("says so", func() {
		Expect(rack.OK("status")).To(ContainSubstring("5000 times slower than real time"))
		rack.OK("clover", "start")
		Expect(rack.OK("run", "ycsb", "--clients", "2", "--keys", "2", "--ops", "4", "--warmup", "0s", "-q")).To(ContainSubstring("in slow motion by 5000: "))
	})

	It("shows what steering gains when NICs limit, as the simulator does", func() {
		file := filepath.Join(GinkgoT().TempDir(), "slow.yaml")
		Expect(os.WriteFile(file, []byte(slowFile), 0o600)).To(Succeed())
		got := map[string]report{}
		for _, steer := range []string{"none", "both"} {
			var real, sim report
			args := append(load[:len(load):len(load)], "--steer", steer)
			Expect(json.Unmarshal([]byte(rack.OK(args...)), &real)).To(Succeed())
			Expect(json.Unmarshal([]byte(rack.OK(append(args, "--on", "sim", "--file", file)...)), &sim)).To(Succeed())
			Expect(real.Failed+real.Wrong+real.NotFound).To(BeZero(), steer)
			Expect(real.Slow).To(Equal(5000))
			Expect(real.RealThroughput).To(BeNumerically("~", real.Throughput/5000, 1))
			Expect(real.Throughput).To(BeNumerically("<", 1.5*sim.Throughput), "no machine is faster than the cost model, steer %s", steer)
			got[steer] = real
		}
		Expect(got["both"].FirstTry).To(BeNumerically(">", 0.8))
		Expect(got["none"].FirstTry).To(BeNumerically("<", 0.7))
		Expect(got["both"].Throughput).To(BeNumerically(">", 2*got["none"].Throughput))
	})
})
