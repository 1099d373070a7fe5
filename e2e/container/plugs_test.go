package container

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("a rack that the engine plugs", Ordered, func() {
	var rack *fixture.Rack
	var before []string
	BeforeAll(func() {
		before = fixture.Traces()
		rack = fixture.New(fixture.Small)
		Expect(fixture.Run("--rack", rack.Name, "up", "-f", rack.File, "--runtime", "docker", "--plug", "driver")).To(fixture.HaveExited(0))
	})

	It("has a network for each link, and disconnecting it is a fault", func() {
		works(rack, "cn0", "ms0")
		docker("network", "disconnect", name(rack, "cn0"), name(rack, "cn0"))
		Eventually(rack.State("cn0"), noticed, "100ms").ShouldNot(Equal("up"))
		Eventually(events(rack, "cn0"), noticed, "100ms").Should(ContainElement("disconnect"))
		works(rack, "cn1", "ms0")
		docker("network", "connect", name(rack, "cn0"), name(rack, "cn0"))
		Eventually(rack.State("cn0"), noticed, "100ms").Should(Equal("up"))
		Expect(rack.OK("exec", "cn0", "--", "/bin/ls", "/sys/class/net")).To(Equal("lo\nrack0\n"))
		works(rack, "cn0", "ms0")
	})

	It("plugs at every start", func() {
		docker("restart", "-t", "0", name(rack, "cn1"))
		Eventually(rack.State("cn1"), noticed, "100ms").Should(Equal("up"))
		works(rack, "cn1", "ms0")
		rack.OK("crash", "ms0")
		rack.OK("restart", "ms0")
		works(rack, "cn1", "ms0")
	})

	It("refuses a second container on a link", func() {
		out, err := exec.Command("docker", "run", "--rm", "--network", name(rack, "cn0"), "rdmalab:dev", "version").CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(ContainSubstring("a link has one container"))
		works(rack, "cn0", "ms0")
	})

	It("is removed without a trace, also when the driver has died", func() {
		pid := watcherPID(rack)
		process, err := os.FindProcess(pid)
		Expect(err).NotTo(HaveOccurred())
		Expect(process.Kill()).To(Succeed())
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	})
})

var _ = Describe("a rack whose containers have a holder", func() {
	It("keeps a host's link when its process is killed", func() {
		before := fixture.Traces()
		rack := fixture.New(fixture.Small)
		Expect(fixture.Run("--rack", rack.Name, "up", "-f", rack.File, "--runtime", "docker", "--plug", "holder")).To(fixture.HaveExited(0))
		docker("kill", name(rack, "ms0"))
		Expect(rack.State("ms0")()).To(Equal("crashed"))
		Expect(rack.OK("status")).To(MatchRegexp(`ms0 +memory +crashed.* up +-`)) // the link
		docker("start", name(rack, "ms0"))
		Eventually(rack.State("ms0"), noticed, "100ms").Should(Equal("up"))
		Expect(containerOf(rack, "ms0").Plugs).To(Equal(1))
		works(rack, "cn0", "ms0")
		rack.OK("crash", "ms0")
		Expect(rack.OK("status")).To(MatchRegexp(`ms0 +memory +crashed.* no-carrier +-`))
		rack.OK("restart", "ms0")
		works(rack, "cn0", "ms0")
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	})
})

var _ = Describe("a compose file", func() {
	DescribeTable("makes the same rack, which notices later compose commands", func(plug string) {
		compose := composer()
		before := fixture.Traces()
		rack := fixture.New(fixture.Small)
		file := filepath.Join(GinkgoT().TempDir(), "compose.yaml")
		text := rack.OK("compose", rack.File, "--plug", plug)
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		up := fixture.Run("--rack", rack.Name, "up", "-f", rack.File, "--compose", file)
		Expect(up).To(fixture.HaveExited(0))
		Expect(up.Stdout).To(ContainSubstring("verified 2 paths"))
		args := append(compose[1:], "-f", file, "-p", "rdmalab-"+rack.Name, "kill", "cn0")
		out, err := exec.Command(compose[0], args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(rack.State("cn0")()).To(Equal("crashed"))
		rack.OK("restart", "cn0")
		works(rack, "cn0", "ms0")
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	},
		Entry("plugged from outside", "outside"),
		Entry("plugged by the engine", "driver"),
	)
})

// composer is the machine's compose.
func composer() []string {
	GinkgoHelper()
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	if _, err := exec.LookPath("docker-compose"); err != nil {
		Skip("neither docker compose nor docker-compose is here")
	}
	return []string{"docker-compose"}
}
