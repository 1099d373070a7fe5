package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// noticed bounds how long the rack may take to notice and restore what a user changed by hand, on a
// busy machine.
const noticed = 30 * time.Second

var _ = Describe("the default rack in containers", Ordered, func() {
	var rack *fixture.Rack
	var before []string
	BeforeAll(func() {
		Expect(fixture.Run("image")).To(fixture.HaveExited(0))
		before = fixture.Traces()
		rack = fixture.New("")
		begin := time.Now()
		up := rack.Up()
		took := time.Since(begin)
		Expect(up).To(fixture.HaveExited(0))
		Expect(up.Stdout).To(ContainSubstring("7 hosts in containers"))
		Expect(up.Stdout).To(ContainSubstring("verified 8 paths by WRITE, READ, CAS and FAA"))
		AddReportEntry("up took", took.String())
	})

	It("asks for three capabilities and no more", func() {
		out := docker("inspect", "--format", "{{.HostConfig.Privileged}} {{.HostConfig.CapDrop}} {{.HostConfig.CapAdd}} {{.HostConfig.ReadonlyRootfs}}", name(rack, "cn0"))
		Expect(strings.Fields(strings.ReplaceAll(out, "CAP_", ""))).To(Equal([]string{"false", "[ALL]", "[NET_RAW", "NET_ADMIN", "IPC_LOCK]", "true"}))
	})

	It("notices a kill by hand, and plugs the container that comes back", func() {
		docker("kill", name(rack, "ms0"))
		Eventually(events(rack, "ms0"), noticed, "100ms").Should(ContainElement("die"))
		Expect(rack.State("ms0")()).To(Equal("crashed"))
		Expect(rack.OK("status")).To(MatchRegexp(name(rack, "ms0") + ` +exited \(137\)`))
		works(rack, "cn1", "ms1")
		docker("start", name(rack, "ms0"))
		Eventually(rack.State("ms0"), noticed, "100ms").Should(Equal("up"))
		Expect(containerOf(rack, "ms0").Plugs).To(Equal(2))
		works(rack, "cn0", "ms0")
	})

	It("notices a pause by hand, and that `resume` and unpause are the same", func() {
		docker("pause", name(rack, "ms0"))
		Expect(rack.State("ms0")()).To(Equal("hung"))
		Eventually(events(rack, "ms0"), noticed, "100ms").Should(ContainElement("pause"))
		rack.OK("resume", "ms0")
		works(rack, "cn0", "ms0")
		rack.OK("hang", "ms0")
		docker("unpause", name(rack, "ms0"))
		Eventually(rack.State("ms0"), noticed, "100ms").Should(Equal("up"))
		works(rack, "cn0", "ms0")
	})

	It("plugs a container that is restarted by hand, again and again", func() {
		for range 3 {
			docker("restart", "-t", "0", name(rack, "cn1"))
		}
		Eventually(rack.State("cn1"), noticed, "100ms").Should(Equal("up"))
		Expect(events(rack, "cn1")()).To(ContainElement("restart"))
		works(rack, "cn1", "ms0")
	})

	It("makes a container again that was removed by hand", func() {
		docker("rm", "-f", name(rack, "cn2"))
		Expect(rack.State("cn2")()).To(Equal("crashed"))
		rack.OK("restart", "cn2")
		works(rack, "cn2", "ms0")
	})

	It("keeps a link cut over a restart, until it is restored", func() {
		rack.OK("link", "cn3", "down")
		docker("restart", "-t", "0", name(rack, "cn3"))
		Eventually(events(rack, "cn3"), noticed, "100ms").Should(ContainElement("restart"))
		Eventually(func() bool { return containerOf(rack, "cn3").Plugs == 2 }, noticed, "100ms").Should(BeTrue())
		Expect(rack.State("cn3")()).NotTo(Equal("up"))
		rack.OK("link", "cn3", "up")
		Eventually(rack.State("cn3"), noticed, "100ms").Should(Equal("up"))
		works(rack, "cn3", "ms1")
	})

	It("reports that its watcher has died, and `up` starts it again", func() {
		pid := watcherPID(rack)
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		Eventually(func() string { return rack.OK("status") }, noticed, "100ms").Should(ContainSubstring("watcher: does not answer"))
		docker("restart", "-t", "0", name(rack, "cn0"))
		up := rack.Up()
		Expect(up).To(fixture.HaveExited(0))
		Expect(up.Stdout).To(ContainSubstring("had lost its watcher: started again"))
		Eventually(rack.State("cn0"), noticed, "100ms").Should(Equal("up"))
		works(rack, "cn0", "ms0")
	})

	It("refuses to be taken for a rack of processes", func() {
		res := fixture.Run("--rack", rack.Name, "up")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("hosts are of another kind"))
	})

	It("is removed without a trace, also by a second down", func() {
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
		rack.OK("down")
	})
})

// watcherPID finds the rack's watcher among the processes.
func watcherPID(rack *fixture.Rack) int {
	GinkgoHelper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(line), "rdmalab\x00watcher\x00--rack\x00"+rack.Name+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			Expect(err).NotTo(HaveOccurred())
			return pid
		}
	}
	Fail("no watcher")
	return 0
}

var _ = Describe("down", func() {
	It("removes containers whose rack has lost its state, as after a reboot", func() {
		before := fixture.Traces()
		rack := fixture.Up(fixture.Small)
		dir := "/run/rdmalab/" + rack.Name
		// The state of the rack and of its processes is removed, but not that of the engine, as
		// after a restart of the machine.
		Expect(syscall.Kill(watcherPID(rack), syscall.SIGKILL)).To(Succeed())
		Expect(syscall.Kill(rack.Status().Switch.PID, syscall.SIGKILL)).To(Succeed())
		Expect(syscall.Unmount(dir, syscall.MNT_DETACH)).To(Succeed())
		Expect(syscall.Rmdir(dir)).To(Succeed())
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	})
})

var _ = Describe("without an engine", func() {
	It("up says where it looked and what to do, and leaves nothing", func() {
		before := fixture.Traces()
		rack := fixture.New(fixture.Small)
		cmd := exec.Command(fixture.Binary(), "--rack", rack.Name, "up", "-f", rack.File, "--runtime", "docker")
		cmd.Env = append(os.Environ(), "DOCKER_HOST=unix:///nowhere/docker.sock")
		out, err := cmd.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(SatisfyAll(ContainSubstring("/nowhere/docker.sock"), ContainSubstring("rdmalab doctor")))
		Expect(fixture.Traces()).To(Equal(before))
	})
})
