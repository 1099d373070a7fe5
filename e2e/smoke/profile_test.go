package smoke

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// written is a line of `profile -o json`.
type written struct {
	Node  string `json:"node"`
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}

// parse reads a profile.
func parse(file string) *profile.Profile {
	GinkgoHelper()
	f, err := os.Open(file)
	Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	p, err := profile.Parse(f)
	Expect(err).NotTo(HaveOccurred())
	Expect(p.CheckValid()).To(Succeed())
	return p
}

// functions are the names of all functions of a profile.
func functions(p *profile.Profile) string {
	var names []string
	for _, f := range p.Function {
		names = append(names, f.Name)
	}
	return strings.Join(names, "\n")
}

// inFolder are the names of all files of a folder.
func inFolder(dir string) []string {
	GinkgoHelper()
	entries, err := os.ReadDir(dir)
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// recording is a command that was started, and records until it is interrupted or refused.
type recording struct {
	cmd    *exec.Cmd
	dir    string
	stderr bytes.Buffer
}

// record starts profile on cn0. The command comes from ended when it has ended.
func record(rack *fixture.Rack, dir string, ended chan<- *recording) *recording {
	GinkgoHelper()
	r := &recording{dir: dir}
	r.cmd = exec.Command(fixture.Binary(), "--rack", rack.Name, "profile", "cn0", "--for", "10m", "--dir", dir)
	r.cmd.Stderr = &r.stderr
	Expect(r.cmd.Start()).To(Succeed())
	DeferCleanup(func() { _ = r.cmd.Process.Kill() }) // has usually ended
	go func() {
		_ = r.cmd.Wait() // the spec looks at the exit status
		ended <- r
	}()
	return r
}

var _ = Describe("profile", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	It("shows what the daemons of hosts and of the switch do", func() {
		rack.Start("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--iters", "100000000")
		dir := filepath.Join(GinkgoT().TempDir(), "new", "folder")
		nodes := []string{"cn0", "ms0", "switch"}
		// A machine with much other work may leave the rack no processor in a whole recording.
		Eventually(func(g Gomega) {
			var list []written
			rack.JSON(&list, append([]string{"profile", "--for", "1s", "--dir", dir}, nodes...)...)
			Expect(list).To(HaveLen(len(nodes)))
			for i, w := range list {
				Expect(w.Node).To(Equal(nodes[i]))
				Expect(w.File).To(Equal(filepath.Join(dir, w.Node+".pprof")))
				p := parse(w.File)
				Expect(p.PeriodType.Type).To(Equal("cpu"))
				g.Expect(functions(p)).To(ContainSubstring("rdmalab/softrnic/packetio"), w.Node)
			}
		}, 2*time.Minute, "20ms").Should(Succeed())
		Expect(inFolder(dir)).To(ConsistOf("cn0.pprof", "ms0.pprof", "switch.pprof"))
	})

	It("records all nodes if it is given none, and says what to do with the files", func() {
		dir := GinkgoT().TempDir()
		out := rack.OK("profile", "--for", "100ms", "--dir", dir)
		for _, node := range []string{"switch", "cn0", "cn1", "ms0"} {
			Expect(out).To(ContainSubstring(filepath.Join(dir, node+".pprof")))
			parse(filepath.Join(dir, node+".pprof"))
		}
		Expect(inFolder(dir)).To(HaveLen(4))
		Expect(out).To(And(ContainSubstring("go tool pprof -top "+dir), ContainSubstring("go tool pprof -http=: "+dir)))
	})

	It("is refused while a profile of the node is recorded, and leaves nothing when it is interrupted", func() {
		ended := make(chan *recording, 2)
		a, b := record(rack, GinkgoT().TempDir(), ended), record(rack, GinkgoT().TempDir(), ended)
		var refused, other *recording
		Eventually(ended).Should(Receive(&refused))
		Expect(refused.cmd.ProcessState.ExitCode()).To(Equal(1))
		Expect(refused.stderr.String()).To(ContainSubstring("a profile of cn0 is being recorded; wait until it ends"))
		Expect(inFolder(refused.dir)).To(BeEmpty())
		if other = a; refused == a {
			other = b
		}
		Expect(other.cmd.Process.Signal(os.Interrupt)).To(Succeed())
		Eventually(ended).Should(Receive(Equal(other)))
		Expect(other.cmd.ProcessState.ExitCode()).To(Equal(1))
		Expect(other.stderr.String()).To(ContainSubstring("interrupted"))
		Expect(inFolder(other.dir)).To(BeEmpty())
		// The daemon learns from the closed connection that the client has gone.
		Eventually(func() int { return rack.Run("profile", "cn0", "--for", "100ms", "--dir", other.dir).Code }).Should(Equal(0))
		Expect(inFolder(other.dir)).To(ConsistOf("cn0.pprof"))
	})

	It("refuses bad input before it records", func() {
		for _, c := range []struct {
			args, want string
			code       int
		}{
			{"profile cn99", "switch cn0 cn1 ms0", 2},
			{"profile cn0 cn99", "switch cn0 cn1 ms0", 2},
			{"profile cn0 --for 0s", "--for 0s: want a time from 100ms to 10m", 2},
			{"profile cn0 --for 11m", "want a time from 100ms to 10m", 2},
			{"profile cn0 --for -1s", "want a time from 100ms to 10m", 2},
			{"profile cn0 --for 5", "it is no duration", 2},
			{"profile cn0 --dir /dev/null/x", "--dir", 2},
			{"profile cn0 --dir /proc", "--dir", 2}, // nothing can be made there, not even by root
		} {
			res := rack.Run(strings.Fields(c.args)...)
			Expect(res.Code).To(Equal(c.code), "%v", res)
			Expect(res.Stderr).To(ContainSubstring(c.want), "%v", res)
		}
	})

	It("keeps the files of the nodes that answer", func() {
		rack.OK("crash", "ms0")
		rack.OK("hang", "cn1")
		dir := GinkgoT().TempDir()
		res := rack.Run("profile", "--for", "100ms", "--dir", dir)
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(And(ContainSubstring("`rdmalab restart ms0` brings it back"), ContainSubstring("cn1 does not answer")))
		Expect(inFolder(dir)).To(ConsistOf("cn0.pprof", "switch.pprof"))
		parse(filepath.Join(dir, "cn0.pprof"))
		Expect(res.Stdout).To(ContainSubstring("cn0.pprof"))
	})
})
