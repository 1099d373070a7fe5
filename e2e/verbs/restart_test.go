package verbs

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("an unmodified program outside of its host", func() {
	It("is told that the device has failed, and opens it again when the host is up again", func() {
		if testsOfPyverbs() == "" {
			Skip("pyverbs is not here: apt-get install python3-pyverbs")
		}
		rack := fixture.Up(fixture.Small)
		cmd := exec.Command("timeout", "90", "sh", "-c",
			`. /dev/stdin; exec /usr/bin/python3 testdata/restart.py "$@"`, "sh", fixture.Binary(), "--rack", rack.Name)
		cmd.Stdin = strings.NewReader(rack.OK("env", "cn0"))
		out, err := cmd.Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(Equal("event fatal\nthe old device has failed\na new device works\n"))
	})
})
