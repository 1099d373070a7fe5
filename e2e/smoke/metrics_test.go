package smoke

import (
	"io"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// fetch returns the answer to a GET.
func fetch(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // a part of it fails the match as well
	return string(b)
}

var _ = Describe("metrics", func() {
	It("are of the rack, and survive it", func() {
		rack := fixture.Up(fixture.Small)
		url := fixture.Serve(rack.Name, "metrics")
		rack.OK("inject", "drop", "--opcode", "RC_WRITE_ONLY", "--once", "--link", "cn0", "--dir", "up")
		rack.Perf("write_bw", "--size", "64", "--iters", "3", "--verify")
		scrape := func() string { return fetch(url) }
		label := `rack="` + rack.Name + `"`
		Eventually(scrape).Should(SatisfyAll(
			ContainSubstring("rdmalab_rack_up{"+label+"} 1\n"),
			ContainSubstring(`rdmalab_fault_hits_total{dir="up",fault="f1",kind="loss",link="cn0",`+label+"} 1\n"),
			ContainSubstring(`rdmalab_switch_port_dropped_packets_total{host="cn0",`+label+`,reason="fault"} 1`+"\n"),
			MatchRegexp(`rdmalab_nic_roce_retrans_packets_total\{host="cn0",`+label+`\} [1-9]`),
			MatchRegexp(`rdmalab_switch_port_rx_bytes_total\{host="cn0",`+label+`\} [1-9]`),
		))
		rack.OK("crash", "cn1")
		Eventually(scrape).Should(ContainSubstring(`rdmalab_node_state{node="cn1",` + label + `,state="crashed"} 1` + "\n"))
		rack.OK("down")
		Eventually(scrape).Should(ContainSubstring("rdmalab_rack_up{" + label + "} 0\n"))
	})
})
