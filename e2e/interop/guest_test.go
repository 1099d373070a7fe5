package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/e2e/interop/image"
)

// bootLimit is how long the guest may take to boot; it takes five seconds on an idle machine.
const bootLimit = 3 * time.Minute

// guest is the running virtual machine.
type guest struct {
	dir   string
	asked *ask.Client
	// kill ends the virtual machine without warning.
	kill func()
}

// buildImage makes the virtual machine's image; it skips the suite if this machine cannot.
func buildImage() *image.Image {
	GinkgoHelper()
	if _, err := exec.LookPath(image.QEMU); err != nil {
		Skip("needs " + image.QEMU + " (Debian: qemu-system-x86)")
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "rdmalab-interop")
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	built := GinkgoT().TempDir()
	files := map[string]string{"init": filepath.Join(built, "init"), "verbs.py": "guest/verbs.py"}
	builds := [][]string{{"build", "-trimpath", "-o", files["init"], "./guest"}}
	for _, c := range chargeTests {
		files[c.name] = filepath.Join(built, c.name)
		builds = append(builds, []string{"test", "-vet=off", "-trimpath", "-c", "-o", files[c.name], c.pkg})
	}
	for _, args := range builds {
		build := exec.Command("go", args...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "go %v: %s", args, out)
	}
	for _, name := range slices.Concat(casePrograms, kindPrograms) {
		if err := compileCase(built, name); err == nil {
			files[filepath.Base(name)] = filepath.Join(built, filepath.Base(name))
		} else {
			GinkgoWriter.Println("no program", name+":", err)
		}
	}
	var extra []image.File
	for name, path := range files {
		data, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		extra = append(extra, image.File{Name: name, Mode: 0o755, Data: data})
	}
	img, err := image.Build(GinkgoT().Context(), dir, "interop", extra)
	if errors.Is(err, image.ErrMissing) {
		Skip("no image of the virtual machine: " + err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	return img
}

// bootGuest starts the machine inside a host and waits until it answers.
func bootGuest(r *fixture.Rack, host string, m image.Machine) *guest {
	GinkgoHelper()
	g := &guest{dir: GinkgoT().TempDir()}
	m.Command, m.Verbs, m.Console = filepath.Join(g.dir, "command"), filepath.Join(g.dir, "verbs"), filepath.Join(g.dir, "console")
	in, err := json.Marshal(m)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(fixture.Binary(), peerArgs(r, host, "vm")...)
	pipe, err := cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	var said ask.Output
	cmd.Stdout, cmd.Stderr = &said, &said
	Expect(cmd.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	g.kill = sync.OnceFunc(func() {
		_ = pipe.Close() // closing its input ends the machine
		Eventually(ended).WithTimeout(20 * time.Second).Should(Receive())
	})
	DeferCleanup(func() { g.kill() })
	_, err = pipe.Write(append(in, '\n'))
	Expect(err).NotTo(HaveOccurred())
	var c net.Conn
	answers := func() error {
		select {
		case err := <-ended:
			ended <- err
			return StopTrying(fmt.Sprintf("the virtual machine ended: %v: %s", err, said.String()))
		default:
		}
		c, err = net.Dial("unix", m.Command)
		return err
	}
	Eventually(answers).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	g.asked = ask.NewClient(c)
	begin := time.Now()
	Expect(g.do(bootLimit, "rdma", "link")).To(ContainSubstring("state ACTIVE"))
	GinkgoWriter.Println("guest is up after", time.Since(begin))
	return g
}

// start starts a program in the guest; finish waits for its end and returns its output.
func (g *guest) start(args ...string) (finish func(limit time.Duration) ask.Answer) {
	GinkgoHelper()
	finish, _ = g.begin(args...)
	return finish
}

// begin starts a program in the guest; finish waits for its end, signal sends it a signal.
func (g *guest) begin(args ...string) (finish func(limit time.Duration) ask.Answer, signal func(unix.Signal)) {
	GinkgoHelper()
	p, err := g.asked.Begin(nil, args...)
	Expect(err).NotTo(HaveOccurred())
	return p.Finish, p.Signal
}

// do runs a program in the guest, which must succeed, and returns its output.
func (g *guest) do(limit time.Duration, args ...string) string {
	GinkgoHelper()
	a := g.start(args...)(limit)
	GinkgoWriter.Printf("guest$ %v\n%s(exit %d)\n", args, a.Output, a.Code)
	Expect(a.Code).To(BeZero(), "%v: %s\nconsole: %s", args, a.Output, g.said())
	return a.Output
}

// said is what the guest has written to its console so far.
func (g *guest) said() string {
	text, _ := os.ReadFile(filepath.Join(g.dir, "console"))
	return string(text)
}
