package smoke

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("a failure", func() {
	It("leaves a bundle with the state, logs and captures of the rack", func() {
		rack := fixture.Up(fixture.Small)
		rack.Perf("verify")
		rack.OK("inject", "loss", "--opcode", "RC_WRITE_ONLY", "--once", "--link", "cn0", "--dir", "up")
		rack.Perf("write_bw", "--size", "64", "--iters", "3", "--verify")
		rack.OK("crash", "cn1")
		folder := GinkgoT().TempDir()
		GinkgoT().Setenv("RDMALAB_BUNDLES", folder)
		res := rack.Run("perf", "write_bw", "--from", "cn1", "--to", "ms0") // a run that fails
		Expect(res.Code).NotTo(Equal(0))
		Expect(res.Stderr).To(ContainSubstring("what is known of the rack: " + folder))
		found, err := filepath.Glob(folder + "/*/README.txt")
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(HaveLen(1))
		checkBundle(filepath.Dir(found[0]), "perf write_bw --from cn1 --to ms0")

		dir := filepath.Join(folder, "spec")
		Expect(rack.Bundle(dir, "a spec", "go test -args -ginkgo.seed=7")).To(Equal(dir))
		checkBundle(dir, "-ginkgo.seed=7")
		yaml, err := os.ReadFile(filepath.Join(dir, "rack.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(yaml)).To(ContainSubstring("cn[0-1]"))
	})

	It("leaves a bundle also when the switch is dead", func() {
		rack := fixture.Up(fixture.Small)
		rack.OK("crash", "switch")
		dir := filepath.Join(GinkgoT().TempDir(), "b")
		Expect(rack.Bundle(dir, "", "")).To(Equal(dir))
		readme, err := os.ReadFile(filepath.Join(dir, "README.txt"))
		Expect(err).NotTo(HaveOccurred())
		_, missing, _ := strings.Cut(string(readme), "Missing:")
		Expect(missing).To(ContainSubstring("packets.pcapng"))
		Expect(missing).To(ContainSubstring("switch/counters.json"))
		Expect(filepath.Join(dir, "log", "switch.log")).To(BeAnExistingFile())
		Expect(filepath.Join(dir, "ms0", "status.json")).To(BeAnExistingFile())
	})
})

// checkBundle checks a bundle of a rack whose link cn0 lost one packet and whose host cn1 has
// crashed.
func checkBundle(dir, replay string) {
	GinkgoHelper()
	read := func(name string) string {
		GinkgoHelper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		Expect(err).NotTo(HaveOccurred())
		return string(b)
	}
	readme := read("README.txt")
	Expect(readme).To(ContainSubstring("seed 1"))
	Expect(readme).To(ContainSubstring(replay))
	Expect(readme).To(ContainSubstring("cn1/status.json: ")) // cn1 has crashed: the bundle lists the parts that are missing
	packets := fixture.Run("dump", filepath.Join(dir, "packets.pcapng"))
	Expect(packets.Stdout).To(ContainSubstring("RC_READ_REQUEST"))
	Expect(packets.Stdout).To(ContainSubstring("fault f1 (loss): dropped"))
	var faults []fixture.Rule
	Expect(json.Unmarshal([]byte(read("switch/faults.json")), &faults)).To(Succeed())
	Expect(faults).To(HaveLen(1))
	Expect(faults[0].Hits).To(BeEquivalentTo(1))
	var status fixture.Status
	Expect(json.Unmarshal([]byte(read("status.json")), &status)).To(Succeed())
	Expect(status.State).To(Equal("crashed"))
	Expect(read("cn0/counters.json")).To(ContainSubstring("sent_pkts"))
	Expect(read("cn0/status.json")).To(ContainSubstring(`"nic"`))
	for _, name := range []string{"switch/counters.json", "switch/flows.json", "switch/macs.json", "switch/tables.json", "rack.json"} {
		Expect(json.Valid([]byte(read(name)))).To(BeTrue(), name)
	}
	Expect(read("log/cn1.log")).NotTo(BeEmpty())
	Expect(read("log/switch.log")).To(ContainSubstring("port"))
}
