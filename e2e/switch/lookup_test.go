package switch_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
)

// natPeers are what a copy of the test binary does inside a host, by the value of peerVariable before
// the first space. The rest is the address.
var natPeers = map[string]func(addr string) error{"tcp-echo": tcpEcho, "tcp-send": tcpSend, "tcp-named": tcpNamed, "tcp-rounds": tcpRounds, "udp-item": udpItem, "udp-reads": udpReads}

const (
	natPort     = "7001"
	natBytes    = 4 << 20
	natPatience = 60 * time.Second
)

// tcpEcho accepts one connection and sends back what arrives on it. It prints the address of the peer.
func tcpEcho(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("listening")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(c.RemoteAddr())
	if err := c.SetDeadline(time.Now().Add(natPatience)); err != nil {
		return err
	}
	_, err = io.Copy(c, c)
	return err
}

// tcpSend sends bytes over a connection and checks that they come back.
func tcpSend(addr string) error {
	c, err := net.DialTimeout("tcp", addr, natPatience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(natPatience)); err != nil {
		return err
	}
	b := make([]byte, natBytes)
	for i := range b {
		b[i] = byte(i*7 + i>>11)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(b)
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	back, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if sha256.Sum256(back) != sha256.Sum256(b) {
		return fmt.Errorf("%d bytes came back, with other contents than the %d that were sent", len(back), len(b))
	}
	fmt.Println("all bytes came back from", c.RemoteAddr())
	return nil
}

// inHost starts a copy of the test binary inside a host.
func inHost(rack *fixture.Rack, host, what string) (out *gbytes.Buffer, ended chan error) {
	GinkgoHelper()
	cmd := exec.Command(fixture.Binary(), "--rack", rack.Name, "exec", host, "--", "/usr/bin/env", peerVariable+"="+what, os.Args[0])
	out = gbytes.NewBuffer()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, GinkgoWriter, time.Second
	Expect(cmd.Start()).To(Succeed())
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	DeferCleanup(func() { _ = cmd.Process.Kill() })
	return out, ended
}

var _ = Describe("A rule of action lookup", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	counter := func(name string) int { return int(rack.SwitchCounters()["lookup"][name]) }
	tables := func() (list []lookuptable.Item) {
		GinkgoHelper()
		rack.JSON(&list, "switch", "lookup")
		return list
	}

	It("translates addresses of TCP between the kernels of two hosts, both ways", func() {
		Expect(rack.OK("switch", "lookup")).To(ContainSubstring("switch rules add server=cn0 action=lookup"))
		const size = "capacity=1024 cells=512 match=destination"
		rack.OK(append([]string{"switch", "rules", "add", "id=out", "server=cn0", "action=lookup", "table=ms1"}, strings.Fields(size)...)...)
		rack.OK(append([]string{"switch", "rules", "add", "id=back", "server=ms0", "action=lookup", "table=ms1", "base=0x200000", "cache=0"}, strings.Fields(size)...)...)
		Eventually(tables, "30s").Should(And(HaveLen(2), HaveEach(HaveField("Table", ConsistOf(HaveField("Up", true))))))
		rack.OK("switch", "lookup", "add", "out", "to=cn1", "dst=ms0")
		rack.OK("switch", "lookup", "add", "back", "to=cn0", "src=cn1")
		Expect(rack.OK("switch", "lookup", "list", "out")).To(Equal(fmt.Sprintf("to=%s dst=%s\n", rack.Host("cn1").IPv4, rack.Host("ms0").IPv4)))

		echo, echoed := inHost(rack, "ms0", "tcp-echo 0.0.0.0:"+natPort)
		Eventually(echo, "30s").Should(gbytes.Say("listening"))
		out, ended := inHost(rack, "cn0", fmt.Sprintf("tcp-send %s:%s", rack.Host("cn1").IPv4, natPort))
		var err error
		Eventually(ended, "90s").Should(Receive(&err))
		Expect(err).NotTo(HaveOccurred(), string(out.Contents()))
		Expect(string(out.Contents())).To(ContainSubstring("all bytes came back from " + rack.Host("cn1").IPv4))
		Eventually(echoed, "30s").Should(Receive(&err))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(echo.Contents())).To(ContainSubstring(rack.Host("cn0").IPv4))

		Expect(counter("hits")).To(BeNumerically(">", 10))
		Expect(counter("cached")).To(BeNumerically(">", 0))
		Eventually(func() int { return counter("in_flight") }, "30s").Should(BeZero())
		Expect(counter("cached") + counter("hits") + counter("misses") + counter("torn") + counter("unfit") + counter("lost") + counter("full") +
			counter("blocked") + counter("long")).To(Equal(counter("frames")))
		Expect(rack.OK("switch", "tables")).To(ContainSubstring("lookup cache"))
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("lookup keys"))
	})

	It("loads entries from a file, and leaves nothing behind when it is removed", func() {
		file := GinkgoT().TempDir() + "/entries"
		var text strings.Builder
		text.WriteString("# a few hundred\n\n")
		for i := range 300 {
			fmt.Fprintf(&text, "to=10.9.%d.%d dscp=%d\n", i/250, i%250+1, i%64)
		}
		Expect(os.WriteFile(file, []byte(text.String()), 0o600)).To(Succeed())
		Expect(rack.OK("switch", "lookup", "load", "out", file)).To(ContainSubstring("300 entries are written"))
		Expect(strings.Count(rack.OK("switch", "lookup", "list", "out"), "\n")).To(Equal(301))
		rack.OK("switch", "lookup", "remove", "out", "to=cn1")
		Expect(rack.OK("switch", "lookup", "list", "out")).NotTo(ContainSubstring("dst="))
		Expect(rack.Run("switch", "lookup", "remove", "out", "to=cn1").Code).NotTo(BeZero())
		rack.OK("switch", "rules", "remove", "out", "back")
		Eventually(tables, "30s").Should(BeEmpty())
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "20", "--verify")
	})
})
