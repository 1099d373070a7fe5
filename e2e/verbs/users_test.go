package verbs

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// userID and groupID are a user and a group without a name, to which nothing on the machine
// belongs.
const userID, groupID = 64001, 64002

// user runs commands without the privileges of root.
type user struct {
	rack    *fixture.Rack
	program string
	groups  []uint32
}

// newUser returns a user in these groups.
func newUser(rack *fixture.Rack, groups ...uint32) user {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "e2e-users-") // GinkgoT().TempDir is below a folder that only root may enter
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	program, err := os.ReadFile(fixture.Binary())
	Expect(err).NotTo(HaveOccurred())
	u := user{rack, filepath.Join(dir, "rdmalab"), groups}
	Expect(os.WriteFile(u.program, program, 0o755)).To(Succeed())
	return u
}

// sh runs a script as the user; in it, $R is rdmalab on the rack.
func (u user) sh(script string) fixture.Result {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env = append(os.Environ(), "R="+u.program+" --rack "+u.rack.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID, Groups: u.groups}}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit status says it
	res := fixture.Result{Args: []string{"as a user:", script}, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	GinkgoWriter.Println(res)
	return res
}

// on runs a program on the NIC of a host, in the network of the machine.
func (u user) on(host, program string) fixture.Result {
	GinkgoHelper()
	return u.sh(fmt.Sprintf(`v="$($R env %s)" && eval "$v" && exec timeout 60 %s`, host, program))
}

// freePort is a TCP port of the machine at which no program listens.
func freePort() int {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

var _ = Describe("users who are not root", Ordered, func() {
	var rack *fixture.Rack
	var member, stranger user
	BeforeAll(func() {
		old := syscall.Umask(0o077) // the shell of root may have any umask
		rack = fixture.Up(fmt.Sprintf("group: %d\n", groupID) + fixture.Small)
		syscall.Umask(old)
		member, stranger = newUser(rack, groupID), newUser(rack)
	})

	It("see the NIC of a host if they are in the group of the rack file", func() {
		out := member.on("cn0", "ibv_devinfo -v")
		Expect(out).To(fixture.HaveExited(0))
		Expect(out.Stdout).To(ContainSubstring("PORT_ACTIVE"))
		Expect(out.Stdout).To(ContainSubstring("::ffff:" + rack.Host("cn0").IPv4 + ", RoCE v2"))
	})

	It("exchange messages between hosts, meeting in the network of the machine", func() {
		port := freePort()
		program := fmt.Sprintf("ibv_rc_pingpong -p %d -g 0 -c -n 100", port)
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- member.on("cn1", program)
		}()
		Eventually(func() (string, error) {
			v4, err := os.ReadFile("/proc/net/tcp")
			v6, _ := os.ReadFile("/proc/net/tcp6") // not on each machine
			return string(v4) + string(v6), err
		}).Should(fixture.Listens(port))
		client := member.on("cn0", program+" localhost")
		Expect(client).To(fixture.HaveExited(0))
		var server fixture.Result
		Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&server))
		Expect(server).To(fixture.HaveExited(0))
		for _, out := range []string{client.Stdout, server.Stdout} {
			Expect(out).To(ContainSubstring("iters in"))
			Expect(out).NotTo(ContainSubstring("invalid data"))
		}
	})

	It("connect by the addresses of hosts, for which they need no network at all", func() {
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- member.on("ms0", "rping -s -C 3 -V")
		}()
		Eventually(func() int { return rack.Listeners("ms0") }).Should(Equal(1))
		client := member.on("cn0", "rping -c -v -V -C 3 -a "+rack.Host("ms0").IPv4)
		Expect(client).To(fixture.HaveExited(0))
		Expect(client.Stdout).To(ContainSubstring("ping data: rdma-ping-2"))
		Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(fixture.HaveExited(0)))
	})

	It("are told what to do if they are not in it, and find no NIC", func() {
		out := stranger.sh("$R env cn0")
		Expect(out.Code).To(Equal(1))
		Expect(out.Stdout).To(BeEmpty())
		Expect(out.Stderr).To(ContainSubstring(fmt.Sprintf("not in group %d", groupID)))
		Expect(out.Stderr).To(ContainSubstring(fmt.Sprintf("usermod -aG %d", groupID)))
		borrowed := member.sh("$R env cn0").Stdout // the variables of a user in the group
		Expect(borrowed).To(ContainSubstring("LD_PRELOAD"))
		out = stranger.sh(borrowed + "ibv_devinfo")
		Expect(out.Code).NotTo(BeZero())
		Expect(out.Stderr).To(ContainSubstring("cannot open shared object file"))
	})

	It("cannot enter a host, and are told what they can do", func() {
		out := member.sh("$R exec cn0 -- ibv_devinfo")
		Expect(out.Code).To(Equal(1))
		Expect(out.Stderr).To(ContainSubstring("needs root"))
		Expect(out.Stderr).To(ContainSubstring(`eval "$(rdmalab env cn0)"`))
	})

	It("control nothing of the rack", func() {
		Expect(member.sh("$R crash cn1").Code).To(Equal(1))
		Expect(member.sh("$R inject loss 1% --link cn0").Code).To(Equal(1))
		Expect(rack.State("cn1")()).To(Equal("up"))
		Expect(rack.Faults()).To(BeEmpty())
	})

	It("have the NIC again after a crash of its host", func() {
		rack.OK("crash", "cn0")
		rack.OK("restart", "cn0")
		Expect(member.on("cn0", "ibv_devinfo").Stdout).To(ContainSubstring("PORT_ACTIVE"))
		Expect(stranger.on("cn0", "ibv_devinfo").Code).To(Equal(1))
	})
})

var _ = Describe("users of a rack without a group", func() {
	It("are told about the key of the rack file", func() {
		rack := fixture.Up(fixture.Small)
		out := newUser(rack, groupID).sh("$R env cn0")
		Expect(out.Code).To(Equal(1))
		Expect(out.Stderr).To(ContainSubstring("group: NAME"))
	})

	It("are refused by name when there is no such group on the machine", func() {
		rack := fixture.New("group: no-such-group\n" + fixture.Small)
		res := rack.Up()
		Expect(res.Code).To(Equal(1))
		Expect(res.Stderr).To(ContainSubstring("groupadd no-such-group"))
		res = fixture.New("group: root\n" + fixture.Small).Up()
		Expect(res.Code).To(Equal(1))
		Expect(res.Stderr).To(ContainSubstring("write another group, or none"))
	})
})
