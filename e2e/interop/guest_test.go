package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// killLimit is how long the guest may take to end a program that ran for too long.
const killLimit = 10 * time.Second

// guest is the running virtual machine.
type guest struct {
	dir string
	c   net.Conn
	// kill ends the virtual machine without warning.
	kill func()
	mu   sync.Mutex // guards the fields below
	next int
	wait map[int]chan ask.Answer
}

// buildImage makes the virtual machine's image; it skips the suite if this machine cannot.
func buildImage() *image.Image {
	GinkgoHelper()
	if _, err := exec.LookPath(qemu); err != nil {
		Skip("needs " + qemu + " (Debian: qemu-system-x86)")
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "rdmalab-interop")
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	program := filepath.Join(GinkgoT().TempDir(), "init")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "go build: %s", out)
	var extra []image.File
	for name, path := range map[string]string{"init": program, "verbs.py": "guest/verbs.py"} {
		data, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		extra = append(extra, image.File{Name: name, Mode: 0o755, Data: data})
	}
	img, err := image.Build(GinkgoT().Context(), dir, extra)
	if errors.Is(err, image.ErrMissing) {
		Skip("no image of the virtual machine: " + err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	return img
}

// bootGuest starts the machine inside a host and waits until it answers.
func bootGuest(r *fixture.Rack, host string, m machine) *guest {
	GinkgoHelper()
	g := &guest{dir: GinkgoT().TempDir(), wait: map[int]chan ask.Answer{}}
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
	answers := func() error {
		select {
		case err := <-ended:
			ended <- err
			return StopTrying(fmt.Sprintf("the virtual machine ended: %v: %s", err, said.String()))
		default:
		}
		c, err := net.Dial("unix", m.Command)
		g.c = c
		return err
	}
	Eventually(answers).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	go g.read()
	begin := time.Now()
	Expect(g.do(bootLimit, "rdma", "link")).To(ContainSubstring("state ACTIVE"))
	GinkgoWriter.Println("guest is up after", time.Since(begin))
	return g
}

func (g *guest) read() {
	dec := json.NewDecoder(g.c)
	for {
		var a ask.Answer
		err := dec.Decode(&a)
		g.mu.Lock()
		if err != nil {
			for _, c := range g.wait {
				close(c)
			}
			g.wait = nil
			g.mu.Unlock()
			return
		}
		if c := g.wait[a.ID]; c != nil {
			c <- a
			delete(g.wait, a.ID)
		}
		g.mu.Unlock()
	}
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
	g.mu.Lock()
	g.next++
	id, c := g.next, make(chan ask.Answer, 1)
	if g.wait == nil {
		g.mu.Unlock()
		Fail("the guest is gone")
	}
	g.wait[id] = c
	err := json.NewEncoder(g.c).Encode(ask.Question{ID: id, Args: args})
	g.mu.Unlock()
	Expect(err).NotTo(HaveOccurred())
	finish = func(limit time.Duration) ask.Answer {
		select {
		case a, ok := <-c:
			if !ok {
				return ask.Answer{Code: -1, Output: "the guest is gone"}
			}
			return a
		case <-time.After(limit):
			g.mu.Lock()
			_ = json.NewEncoder(g.c).Encode(ask.Question{ID: id}) // ends it
			g.mu.Unlock()
		}
		said := ""
		select {
		case a := <-c:
			said = a.Output
		case <-time.After(killLimit):
		}
		return ask.Answer{Code: -1, Output: fmt.Sprintf("%v: no end within %v; it said: %s", args, limit, said)}
	}
	return finish, func(s unix.Signal) {
		g.mu.Lock()
		defer g.mu.Unlock()
		_ = json.NewEncoder(g.c).Encode(ask.Question{ID: id, Signal: int(s)}) // a guest whose virtual machine was killed needs none
	}
}

// do runs a program in the guest, which must succeed, and returns its output.
func (g *guest) do(limit time.Duration, args ...string) string {
	GinkgoHelper()
	a := g.start(args...)(limit)
	GinkgoWriter.Printf("guest$ %v\n%s(exit %d)\n", args, a.Output, a.Code)
	console, _ := os.ReadFile(filepath.Join(g.dir, "console")) // the output so far
	Expect(a.Code).To(BeZero(), "%v: %s\nconsole: %s", args, a.Output, console)
	return a.Output
}
