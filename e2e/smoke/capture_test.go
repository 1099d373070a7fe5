package smoke

import (
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("a capture", Ordered, func() {
	var rack *fixture.Rack
	var file string
	BeforeAll(func() {
		rack = fixture.Up(fixture.Small)
		file = filepath.Join(GinkgoT().TempDir(), "all.pcapng")
		stop := rack.Start("capture", "-w", file)
		// The capture is running once a packet is in the file; until then the traffic repeats.
		Eventually(func() string {
			rack.Perf("write_bw", "--size", "10000", "--iters", "3", "--verify")
			return fixture.Run("dump", file).Stdout
		}, fixture.Patience, "200ms").Should(ContainSubstring("RC_WRITE"))
		rack.Perf("read_bw", "--size", "10000", "--iters", "3")
		rack.Perf("send_bw", "--size", "10000", "--iters", "3")
		rack.Perf("atomic_bw", "--iters", "3")
		rack.Perf("atomic_bw", "--type", "cas", "--iters", "3")
		Expect(stop()).To(fixture.HaveExited(0))
	})

	It("is readable by dump, and every ICRC is right", func() {
		out := fixture.Run("dump", file)
		Expect(out).To(fixture.HaveExited(0))
		Expect(out.Stdout).To(ContainSubstring("icrc=ok"))
		Expect(out.Stdout).NotTo(ContainSubstring("icrc=bad"))
		for _, op := range []string{"RC_WRITE_FIRST", "RC_READ_REQUEST", "RC_READ_RESPONSE", "RC_SEND", "RC_FETCH_ADD", "RC_CMP_SWAP", "RC_ATOMIC_ACK", "RC_ACK"} {
			Expect(out.Stdout).To(ContainSubstring(op))
		}
	})

	It("is RoCEv2 to tshark, with nothing malformed", func() {
		if _, err := exec.LookPath("tshark"); err != nil {
			Skip("tshark is not installed: no independent reader (apt-get install tshark)")
		}
		tshark := func(filter string) []string {
			GinkgoHelper()
			out, err := exec.Command("tshark", "-r", file, "-Y", filter, "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info").Output()
			Expect(err).NotTo(HaveOccurred())
			return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
		}
		roce := tshark("infiniband.bth")
		Expect(len(roce)).To(BeNumerically(">", 50))
		for _, line := range roce {
			Expect(line).To(ContainSubstring("RRoCE"))
		}
		Expect(tshark("udp.port == 4791 && !infiniband.bth")).To(BeEmpty())
		Expect(tshark("_ws.malformed")).To(BeEmpty())
	})

	It("has one interface for each link and direction", func() {
		if _, err := exec.LookPath("capinfos"); err != nil {
			Skip("capinfos is not installed (apt-get install tshark)")
		}
		out, err := exec.Command("capinfos", file).CombinedOutput()
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"cn0 up", "cn0 down", "cn1 up", "ms0 up", "ms0 down"} {
			Expect(string(out)).To(ContainSubstring(name))
		}
	})
})
