package smoke

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("perf with the flags of perftest", func() {
	It("sweeps sizes, runs for a time, in both directions, over several queue pairs, in other units", func() {
		rack := fixture.Up(fixture.Small)
		for args, want := range map[string]string{
			"ib_write_bw -s 4096 -n 50":                      "RDMA_Write BW Test",
			"write_bw -a -s 64 -n 20 --report_gbits":         "BW average[Gb/sec]",
			"read_bw -b -q 2 -n 40 -m 1024 -t 16 --units MB": "RDMA_Read Bidirectional BW Test",
			"send_lat -D 1 -x 1 -I 8":                        "RDMA_Send Latency Test",
			"send_bw -c UD -s 1024 -n 20 -Q 4":               "transport UD",
			"atomic_bw -D 1 --verify":                        "each original value and the sum",
		} {
			Expect(rack.OK(append(append([]string{"perf"}, strings.Fields(args)...), "--from", "cn0", "--to", "ms0")...)).To(ContainSubstring(want), args)
		}
	})
})
