package smoke

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/topo/doctor"
)

var _ = Describe("the doctor", func() {
	It("finds that a machine which runs these suites can have racks, and leaves nothing", func() {
		before := fixture.Traces()
		res := fixture.Run("doctor", "-o", "json")
		Expect(res).To(fixture.HaveExited(0))
		var r doctor.Report
		Expect(json.Unmarshal([]byte(res.Stdout), &r)).To(Succeed())
		Expect(r.Ready).To(BeTrue())
		Expect(r.Findings).To(HaveLen(len(doctor.Probes())))
		for _, f := range r.Findings {
			if f.Required {
				Expect(f.State).To(Equal(doctor.OK), f.Check)
			}
		}
		Expect(fixture.Run("doctor").Stdout).To(ContainSubstring("a rack can be brought up"))
		Expect(fixture.Traces()).To(Equal(before))
	})

	It("reports that a rack needs privileges, and how to get them", func() {
		const unprivileged = 65534
		dir, err := os.MkdirTemp("", "e2e-doctor-") // GinkgoT().TempDir is below a folder that only root may enter
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		Expect(os.Chmod(dir, 0o755)).To(Succeed())
		program, err := os.ReadFile(fixture.Binary())
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(dir, "rdmalab")
		Expect(os.WriteFile(file, program, 0o755)).To(Succeed())
		cmd := exec.Command(file, "doctor")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		cmd.Dir = "/"
		out, err := cmd.Output()
		Expect(err).To(MatchError("exit status 1"), string(out))
		Expect(string(out)).To(ContainSubstring("no rack can be brought up here: fix root"))
		Expect(string(out)).To(ContainSubstring("sudo rdmalab doctor"))
	})
})
