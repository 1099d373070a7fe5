package smoke

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// failVariable is set in the environment of a suite that has a spec that fails.
const failVariable = "RDMALAB_E2E_FAIL"

// failing is the text of that spec.
const failing = "the failure of a spec that is made to fail"

func init() {
	if os.Getenv(failVariable) == "" {
		return
	}
	It(failing, func() {
		rack := fixture.Up(fixture.Small)
		rack.Perf("verify")
		rack.OK("inject", "loss", "--opcode", "RC_WRITE_ONLY", "--once", "--link", "cn0", "--dir", "up")
		rack.Perf("write_bw", "--size", "64", "--iters", "3", "--verify")
		rack.OK("crash", "cn1")
		Fail("on purpose")
	})
}

var _ = Describe("a spec that fails", func() {
	It("leaves a bundle by itself, with the command that runs it again", func() {
		folder := GinkgoT().TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=TestSmoke", "-ginkgo.focus="+failing, "-ginkgo.no-color", "-ginkgo.seed=77")
		cmd.Env = append(os.Environ(), failVariable+"=1", "RDMALAB_BUNDLES="+folder)
		out, err := cmd.CombinedOutput()
		Expect(err).To(HaveOccurred(), "%s", out)
		Expect(string(out)).To(And(ContainSubstring("on purpose"), ContainSubstring(folder))) // the path is in the log
		found, err := filepath.Glob(folder + "/*/README.txt")
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(HaveLen(1), "%s", out)
		dir := filepath.Dir(found[0])
		checkBundle(dir, "go test ./e2e/smoke -count=1 -args -ginkgo.seed=77 -ginkgo.focus='"+failing+"'")
		Expect(filepath.Join(dir, "rack.yaml")).To(BeAnExistingFile())
	})
})
